package shmjet.nexmark;

import com.hazelcast.jet.Traverser;
import com.hazelcast.jet.Traversers;
import com.hazelcast.jet.core.AbstractProcessor;
import com.hazelcast.jet.core.Watermark;
import com.hazelcast.jet.datamodel.Tuple2;
import com.hazelcast.jet.impl.JetEvent;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;

import shmjet.nexmark.Events.Auction;
import shmjet.nexmark.Events.Bid;
import shmjet.nexmark.Events.Event;

/**
 * Keeps the highest bid of each auction, the earlier one of equals, and emits both when the auction expires; after
 * JoinAuctionToWinningBidP of Jet's NEXMark. At the end of a bounded run all auctions expire.
 */
final class WinningBids extends AbstractProcessor {
    private final long longestMs;
    private final Map<Long, Bid> best = new HashMap<>();
    private final PriorityQueue<Auction> open =
            new PriorityQueue<>(Comparator.comparingLong(Auction::expires).thenComparingLong(Auction::id));
    private long now = Long.MIN_VALUE / 2;
    private long swept = Long.MIN_VALUE / 2;
    private Traverser<Object> won;
    private boolean ending;

    WinningBids(long longestMs) {
        this.longestMs = longestMs;
    }

    @Override
    @SuppressWarnings("unchecked")
    protected boolean tryProcess(int ordinal, Object item) {
        Event event = ((JetEvent<Event>) item).payload();
        if (event.ts() < now) {
            return true;
        }
        if (event instanceof Auction auction) {
            open.add(auction);
        } else {
            Bid bid = (Bid) event;
            best.merge(bid.auction(), bid, WinningBids::better);
        }
        return true;
    }

    private static Bid better(Bid one, Bid other) {
        if (one.price() != other.price()) {
            return one.price() > other.price() ? one : other;
        }
        return one.ts() <= other.ts() ? one : other;
    }

    @Override
    public boolean tryProcessWatermark(Watermark watermark) {
        if (won == null) {
            won = expired(watermark.timestamp()).append(watermark);
        }
        if (!emitFromTraverser(won)) {
            return false;
        }
        won = null;
        return true;
    }

    @Override
    public boolean complete() {
        if (!ending) {
            ending = true;
            won = expired(Long.MAX_VALUE);
        }
        return emitFromTraverser(won);
    }

    private Traverser<Object> expired(long time) {
        now = time;
        List<Object> found = new ArrayList<>();
        while (!open.isEmpty() && open.peek().expires() <= now) {
            Auction auction = open.poll();
            Bid bid = best.remove(auction.id());
            if (bid != null) {
                found.add(JetEvent.jetEvent(auction.expires(), Tuple2.tuple2(auction, bid)));
            }
        }
        if (now != Long.MAX_VALUE && now >= swept + longestMs / 8) {
            swept = now;
            best.values().removeIf(bid -> bid.ts() < now - longestMs);
        }
        return Traversers.traverseIterable(found);
    }
}
