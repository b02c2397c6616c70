package shmjet.nexmark;

import java.io.Serializable;

/** The events by sequence number, as in examples/nexmark/events.py. */
final class Events {
    static final String[] STATES = (
            "AL AK AZ AR CA CO CT DE FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO "
            + "MT NE NV NH NJ NM NY NC ND OH OK OR PA RI SC SD TN TX UT VT VA WA WV WI WY").split(" ");
    static final int CATEGORIES = 128;
    static final int BIDDERS = 10;

    /** An event that has an id and a time, as all of Jet's model have. */
    interface Event extends Serializable {
        long id();

        long ts();
    }

    record Bid(long id, long ts, long auction, long price) implements Event {
        /** With another price. */
        Bid withPrice(long other) {
            return new Bid(id, ts, auction, other);
        }
    }

    record SignedBid(long id, long ts, long auction, long price, long bidder) implements Event { }

    record Auction(long id, long ts, long seller, int category, long expires) implements Event { }

    record Person(long id, long ts, String name, String state) implements Event { }

    /** Makes the event of a number. */
    interface Maker<T> extends Serializable {
        T make(long number, long ts);
    }

    /** One stream of events: its rate by event time, and what makes them. */
    record Stream<T>(String name, long rate, Maker<T> maker) implements Serializable {
        long count(long spanMs) {
            return (spanMs * rate + 999) / 1000;
        }
    }

    private Events() {
    }

    static long chance(long number, long bound) {
        return Math.abs(mix(number)) % bound;
    }

    private static long mix(long number) {
        long h = number * 0x9E3779B97F4A7C15L;
        h ^= h >>> 32;
        return h ^ (h >>> 16);
    }

    static Stream<Bid> bids(Load load) {
        long keys = load.keys();
        return new Stream<>("bids", load.rate(), (n, ts) -> new Bid(n, ts, n % keys, chance(n, 100)));
    }

    static Stream<Bid> countedBids(Load load) {
        long keys = load.keys();
        return new Stream<>("bids", load.rate(), (n, ts) -> new Bid(n, ts, n % keys, 0));
    }

    static Stream<Bid> risingBids(Load load) {
        return new Stream<>("bids", load.rate(), (n, ts) -> new Bid(n, ts, n, chance(n, Math.max(1, n / 100))));
    }

    static Stream<SignedBid> signedBids(Load load) {
        long keys = load.keys();
        return new Stream<>("bids", load.rate(),
                (n, ts) -> new SignedBid(n, ts, n % keys, chance(n, 100), chance(31 * n, BIDDERS)));
    }

    static Stream<Event> q3Persons(Load load) {
        return new Stream<>("persons", Math.max(1, load.rate() / 100),
                (n, ts) -> new Person(n, ts, "Person " + n, STATES[(int) (n % STATES.length)]));
    }

    static Stream<Event> q3Auctions(Load load) {
        long keys = load.keys();
        long ttl = load.sellerTtlMs();
        return new Stream<>("auctions", load.rate(), (n, ts) -> {
            long seller = n / 100 - chance(n, keys);
            return seller < 0
                    ? new Auction(n, ts, 0, 1, ts + ttl)
                    : new Auction(n, ts, seller, (int) chance(n, 10), ts + ttl);
        });
    }

    static Stream<Event> q4Bids(Load load) {
        long each = load.bidsPerAuction();
        return new Stream<>("bids", load.rate(), (n, ts) -> new Bid(n, ts, n / each, 0));
    }

    static Stream<Event> q4Auctions(Load load) {
        return auctions(load.keys(), Load.AUCTIONS_PER_SECOND, load.q4LeastMs(), 2 * load.q4LeastMs());
    }

    static Stream<Event> q6Bids(Load load) {
        long each = load.bidsPerAuction();
        return new Stream<>("bids", load.rate(), (n, ts) -> new Bid(n, ts, n / each, chance(n, 1000)));
    }

    static Stream<Event> q6Auctions(Load load) {
        return auctions(load.keys(), load.rate() / load.bidsPerAuction(), load.q6LeastMs(), load.q6LeastMs());
    }

    private static Stream<Event> auctions(long keys, long rate, long leastMs, long moreMs) {
        return new Stream<>("auctions", rate, (n, ts) -> new Auction(n, ts, chance(137 * n, keys),
                (int) chance(743 * n, CATEGORIES), ts + leastMs + chance(271 * n, moreMs)));
    }

    static Stream<Person> q8Persons(Load load) {
        long keys = load.keys();
        return new Stream<>("persons", load.rate() / 10, (n, ts) -> {
            long key = chance(n, keys);
            return new Person(key, ts, "Person " + key, STATES[(int) (key % STATES.length)]);
        });
    }

    static Stream<Auction> q8Auctions(Load load) {
        long keys = load.keys();
        return new Stream<>("auctions", load.rate() / 10 * 9,
                (n, ts) -> new Auction(n, ts, chance(137 * n, keys), 0, ts));
    }

    static String itemName(long key) {
        return String.format("Auctioned Item #%05d", key);
    }
}
