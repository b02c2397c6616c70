package shmjet.nexmark;

import com.hazelcast.function.ComparatorEx;
import com.hazelcast.jet.Traverser;
import com.hazelcast.jet.Traversers;
import com.hazelcast.jet.Util;
import com.hazelcast.jet.accumulator.LongAccumulator;
import com.hazelcast.jet.aggregate.AggregateOperations;
import com.hazelcast.jet.datamodel.KeyedWindowResult;
import com.hazelcast.jet.datamodel.Tuple2;
import com.hazelcast.jet.pipeline.BatchStage;
import com.hazelcast.jet.pipeline.JoinClause;
import com.hazelcast.jet.pipeline.Pipeline;
import com.hazelcast.jet.pipeline.StreamStage;
import com.hazelcast.jet.pipeline.WindowDefinition;
import com.hazelcast.jet.pipeline.test.TestSources;

import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

import shmjet.nexmark.Events.Auction;
import shmjet.nexmark.Events.Bid;
import shmjet.nexmark.Events.Event;
import shmjet.nexmark.Events.Person;

/** The queries, as in Jet's NEXMark; query 18, which that does not have, as in examples/nexmark. */
final class Queries {
    private static final Set<String> NEAR = Set.of("OR", "CA", "ID");
    private static final int TOP = 10;
    private static final int LAST_PRICES = 10;

    /** Reads a stream of events. */
    interface Reader {
        <T> StreamStage<T> read(Events.Stream<T> stream);

        Pipeline pipeline();
    }

    /** A result of a query: its fields, of which one says when it was due, and whether its latency is looked at. */
    interface Look<T> extends Serializable {
        Object[] fields(T result);
    }

    /** A query: its results, how they are printed, and how their latency is measured. */
    record Query<T>(StreamStage<T> stage, Look<T> look, Due<T> due, Sieve<T> sieve) { }

    interface Due<T> extends Serializable {
        long of(T result);
    }

    interface Sieve<T> extends Serializable {
        boolean keeps(T result);
    }

    private Queries() {
    }

    static Query<?> of(int number, Reader read, Load load) {
        return switch (number) {
            case 1 -> q1(read, load);
            case 2 -> q2(read, load);
            case 3 -> q3(read, load);
            case 4 -> q4(read, load);
            case 5 -> q5(read, load);
            case 6 -> q6(read, load);
            case 7 -> q7(read, load);
            case 8 -> q8(read, load);
            case 13 -> q13(read, load);
            case 18 -> q18(read, load);
            default -> throw new IllegalArgumentException("no query " + number);
        };
    }

    /** The streams of a query, to read them without it. */
    static List<Events.Stream<?>> streams(int number, Load load) {
        return switch (number) {
            case 1, 2, 13 -> List.of(Events.bids(load));
            case 3 -> List.of(Events.q3Persons(load), Events.q3Auctions(load));
            case 4 -> List.of(Events.q4Auctions(load), Events.q4Bids(load));
            case 5 -> List.of(Events.countedBids(load));
            case 6 -> List.of(Events.q6Auctions(load), Events.q6Bids(load));
            case 7 -> List.of(Events.risingBids(load));
            case 8 -> List.of(Events.q8Persons(load), Events.q8Auctions(load));
            case 18 -> List.of(Events.signedBids(load));
            default -> throw new IllegalArgumentException("no query " + number);
        };
    }

    private static Query<?> q1(Reader read, Load load) {
        long sieve = load.sieve();
        return new Query<Bid>(
                read.read(Events.bids(load)).map(bid -> bid.withPrice(bid.price() * 8 / 10)),
                bid -> new Object[]{bid.id(), bid.ts(), bid.auction(), bid.price()},
                Bid::ts,
                bid -> bid.id() % sieve == 0);
    }

    private record Sold(long ts, long auction, long price) implements Serializable { }

    private static Query<?> q2(Reader read, Load load) {
        long sieve = Math.max(1, load.sieve() / 128);
        return new Query<Sold>(
                read.read(Events.bids(load))
                        .filter(bid -> bid.auction() % 128 == 0)
                        .map(bid -> new Sold(bid.ts(), bid.auction(), bid.price())),
                sold -> new Object[]{sold.ts(), sold.auction(), sold.price()},
                Sold::ts,
                sold -> sold.auction() % sieve == 0);
    }

    private record Offer(String name, String state, long ts, long id, int category) implements Serializable {
        Offer(Person person, Auction auction) {
            this(person.name(), person.state(), auction.ts(), auction.id(), auction.category());
        }
    }

    private static final class Seller implements Serializable {
        private Person person;
        private List<Auction> waiting = new ArrayList<>();

        Traverser<Offer> met(Event event) {
            if (event instanceof Auction auction) {
                if (person != null) {
                    return Traversers.singleton(new Offer(person, auction));
                }
                waiting.add(auction);
                return Traversers.empty();
            }
            person = (Person) event;
            List<Auction> flushed = waiting;
            waiting = new ArrayList<>();
            Person known = person;
            return Traversers.traverseIterable(flushed).map(auction -> new Offer(known, auction));
        }
    }

    private static Query<?> q3(Reader read, Load load) {
        StreamStage<Event> persons =
                read.read(Events.q3Persons(load)).filter(event -> NEAR.contains(((Person) event).state()));
        StreamStage<Event> auctions =
                read.read(Events.q3Auctions(load)).filter(event -> ((Auction) event).category() == 0);
        StreamStage<Offer> offers = persons.merge(auctions)
                .groupingKey(event -> event instanceof Auction auction ? auction.seller() : event.id())
                .flatMapStateful(load.sellerTtlMs(), Seller::new,
                        (seller, key, event) -> seller.met(event),
                        (seller, key, watermark) -> Traversers.empty());
        return new Query<Offer>(offers,
                offer -> new Object[]{offer.name(), offer.state(), offer.ts(), offer.id(), offer.category()},
                Offer::ts,
                offer -> true);
    }

    private static StreamStage<Tuple2<Auction, Bid>> won(
            Reader read, Events.Stream<Event> auctions, Events.Stream<Event> bids, long longestMs) {
        return read.read(auctions)
                .merge(read.read(bids))
                .groupingKey(event -> event instanceof Bid bid ? bid.auction() : event.id())
                .customTransform("winning bids", () -> new WinningBids(longestMs));
    }

    private record Average(long category, double price, long expires) implements Serializable { }

    private static Query<?> q4(Reader read, Load load) {
        StreamStage<Average> averages =
                won(read, Events.q4Auctions(load), Events.q4Bids(load), 3 * load.q4LeastMs())
                        .groupingKey(pair -> pair.f0().category())
                        .rollingAggregate(AggregateOperations.allOf(
                                AggregateOperations.<Tuple2<Auction, Bid>>averagingLong(pair -> pair.f1().price()),
                                AggregateOperations.<Tuple2<Auction, Bid>>maxBy(
                                        ComparatorEx.comparingLong(pair -> pair.f0().expires()))))
                        .map(found -> new Average(found.getKey(), found.getValue().f0(),
                                found.getValue().f1().f0().expires()));
        return new Query<Average>(averages,
                average -> new Object[]{average.category(), average.price(), average.expires()},
                Average::expires,
                average -> true);
    }

    private record Top(long end, List<KeyedWindowResult<Long, Long>> counts) implements Serializable { }

    private static Query<?> q5(Reader read, Load load) {
        StreamStage<Top> tops = read.read(Events.countedBids(load))
                .window(WindowDefinition.sliding(load.windowMs(), load.slideMs()))
                .groupingKey(Bid::auction)
                .aggregate(AggregateOperations.counting())
                .window(WindowDefinition.tumbling(load.slideMs()))
                .aggregate(AggregateOperations.topN(TOP, Queries::fewerBids))
                .map(found -> new Top(found.end(), found.result()));
        return new Query<Top>(tops,
                top -> new Object[]{top.end(), top.counts().stream()
                        .map(count -> new Object[]{count.key(), count.result()}).toArray()},
                Top::end,
                top -> true);
    }

    /** Jet's order, where of equally many bids the lower auction comes first, so that there is one answer. */
    private static int fewerBids(KeyedWindowResult<Long, Long> one, KeyedWindowResult<Long, Long> other) {
        int found = Long.compare(one.result(), other.result());
        return found != 0 ? found : Long.compare(other.key(), one.key());
    }

    private static final class Prices implements Serializable {
        private final ArrayDeque<Long> last = new ArrayDeque<>(LAST_PRICES);

        double averageWith(long price) {
            if (last.size() == LAST_PRICES) {
                last.removeFirst();
            }
            last.addLast(price);
            long sum = 0;
            for (long one : last) {
                sum += one;
            }
            return (double) sum / last.size();
        }
    }

    private static Query<?> q6(Reader read, Load load) {
        StreamStage<Average> averages =
                won(read, Events.q6Auctions(load), Events.q6Bids(load), 2 * load.q6LeastMs())
                        .groupingKey(pair -> pair.f0().seller())
                        .mapStateful(Prices::new, (prices, seller, pair) -> new Average(
                                seller, prices.averageWith(pair.f1().price()), pair.f0().expires()));
        return new Query<Average>(averages,
                average -> new Object[]{average.category(), average.price(), average.expires()},
                Average::expires,
                average -> true);
    }

    private record Highest(long end, long auction, long price) implements Serializable { }

    private static Query<?> q7(Reader read, Load load) {
        StreamStage<Highest> highest = read.read(Events.risingBids(load))
                .window(WindowDefinition.tumbling(load.windowMs()))
                .aggregate(AggregateOperations.maxBy(ComparatorEx.comparingLong(Bid::price)))
                .map(found -> new Highest(found.end(), found.result().auction(), found.result().price()));
        return new Query<Highest>(highest,
                found -> new Object[]{found.end(), found.auction(), found.price()},
                Highest::end,
                found -> true);
    }

    private record Newcomer(long end, long id, String name, long auctions) implements Serializable { }

    private static Query<?> q8(Reader read, Load load) {
        StreamStage<Newcomer> newcomers = read.read(Events.q8Persons(load))
                .groupingKey(Person::id)
                .window(WindowDefinition.sliding(load.windowMs(), load.slideMs()))
                .aggregate2(AggregateOperations.pickAny(),
                        read.read(Events.q8Auctions(load)).groupingKey(Auction::seller),
                        AggregateOperations.counting())
                .filter(found -> found.result().f0() != null && found.result().f1() > 0)
                .map(found -> new Newcomer(
                        found.end(), found.key(), found.result().f0().name(), found.result().f1()));
        long sieve = Math.max(1, load.keys() / 100);
        return new Query<Newcomer>(newcomers,
                found -> new Object[]{found.end(), found.id(), found.name(), found.auctions()},
                Newcomer::end,
                found -> found.id() % sieve == 0);
    }

    private record Named(Bid bid, String name) implements Serializable { }

    private static Query<?> q13(Reader read, Load load) {
        List<Map.Entry<Long, String>> names = LongStream.range(0, load.keys())
                .mapToObj(key -> Util.entry(key, Events.itemName(key)))
                .collect(Collectors.toList());
        BatchStage<Map.Entry<Long, String>> side = read.pipeline().readFrom(TestSources.items(names));
        long sieve = load.sieve();
        return new Query<Named>(
                read.read(Events.bids(load)).hashJoin(side, JoinClause.joinMapEntries(Bid::auction), Named::new),
                named -> new Object[]{named.bid().id(), named.bid().ts(), named.bid().auction(), named.bid().price(),
                        named.name()},
                named -> named.bid().ts(),
                named -> named.bid().id() % sieve == 0);
    }

    private static Query<?> q18(Reader read, Load load) {
        long sieve = load.sieve();
        return new Query<Events.SignedBid>(
                read.read(Events.signedBids(load))
                        .groupingKey(bid -> bid.auction() * Events.BIDDERS + bid.bidder())
                        .mapStateful(() -> new LongAccumulator(-1), (last, key, bid) -> {
                            if (bid.ts() < last.get()) {
                                return null;
                            }
                            last.set(bid.ts());
                            return bid;
                        }),
                bid -> new Object[]{bid.bidder(), bid.auction(), bid.id(), bid.ts(), bid.price()},
                Events.SignedBid::ts,
                bid -> bid.id() % sieve == 0);
    }
}
