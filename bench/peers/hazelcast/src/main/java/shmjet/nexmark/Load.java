package shmjet.nexmark;

import java.io.Serializable;

/** The parameters of a run, as in examples/nexmark/events.py. */
record Load(long rate, long keys, long windowMs, long slideMs) implements Serializable {
    static final long AUCTIONS_PER_SECOND = 1000;

    long sieve() {
        return Math.max(1, rate / 8192);
    }

    long bidsPerAuction() {
        return Math.max(1, rate / AUCTIONS_PER_SECOND);
    }

    long sellerTtlMs() {
        return keys * 100 * 1000 / rate;
    }

    long q4LeastMs() {
        return Math.max(1, keys * 1000 / AUCTIONS_PER_SECOND / 2);
    }

    long q6LeastMs() {
        return Math.max(1, keys * bidsPerAuction() * 1000 / rate);
    }
}
