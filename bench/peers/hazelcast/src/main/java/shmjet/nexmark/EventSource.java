package shmjet.nexmark;

import com.hazelcast.jet.core.AbstractProcessor;
import com.hazelcast.jet.core.EventTimePolicy;
import com.hazelcast.jet.core.ProcessorMetaSupplier;
import com.hazelcast.jet.core.Watermark;
import com.hazelcast.jet.impl.JetEvent;
import com.hazelcast.jet.pipeline.Sources;
import com.hazelcast.jet.pipeline.StreamSource;

/**
 * Emits the events of one stream; after EventSourceP of Jet's NEXMark. Number n goes to processor n % P, and n * 1000 /
 * rate milliseconds after the start is its time. With a bound it emits as fast as the events are taken and ends;
 * without one each event when it is due, for ever.
 */
final class EventSource<T> extends AbstractProcessor {
    private static final long NS = 1_000_000_000L;
    private static final long NOTHING_YET = Long.MIN_VALUE / 2;

    private final Events.Stream<T> stream;
    private final long end;
    private final long startMs;
    private final long frame;
    private final long offset;

    private long number;
    private long step;
    private long startNanos;
    private long lastMark = NOTHING_YET;
    private Object waiting;
    private Watermark mark;

    private EventSource(Events.Stream<T> stream, long end, long startMs, EventTimePolicy<? super T> policy) {
        this.stream = stream;
        this.end = end;
        this.startMs = startMs;
        this.frame = policy.watermarkThrottlingFrameSize();
        this.offset = policy.watermarkThrottlingFrameOffset();
    }

    /** A source of a bounded span (end) or by schedule (end < 0), whose first event is due at startMs. */
    static <T> StreamSource<T> of(Events.Stream<T> stream, long end, long startMs) {
        return Sources.streamFromProcessorWithWatermarks(stream.name(), true, policy ->
                ProcessorMetaSupplier.of(() -> new EventSource<>(stream, end, startMs, policy)));
    }

    @Override
    protected void init(Context context) {
        number = context.globalProcessorIndex();
        step = context.totalParallelism();
        startNanos = System.nanoTime() + (startMs - System.currentTimeMillis()) * 1_000_000L;
    }

    @Override
    public boolean complete() {
        long rate = stream.rate();
        long now = end < 0 ? System.nanoTime() - startNanos : 0;
        while (true) {
            if (waiting != null) {
                if (!tryEmit(waiting)) {
                    return false;
                }
                waiting = null;
            }
            if (mark != null) {
                if (!tryEmit(mark)) {
                    return false;
                }
                mark = null;
            }
            if (end >= 0 ? number >= end : dueNanos(number, rate) > now) {
                if (end < 0 && now > 0) {
                    // time goes on where nothing is due
                    long reached = Math.min(startMs + now / 1_000_000, startMs + number * 1000 / rate);
                    if (markAt(reached)) {
                        continue;
                    }
                }
                return end >= 0;
            }
            long ts = startMs + number * 1000 / rate;
            waiting = JetEvent.jetEvent(ts, stream.maker().make(number, ts));
            number += step;
            markAt(ts);
        }
    }

    private static long dueNanos(long number, long rate) {
        return number / rate * NS + number % rate * NS / rate;
    }

    private boolean markAt(long ts) {
        if (frame == 0 || ts < lastMark + frame) {
            return false;
        }
        lastMark = ts - Math.floorMod(ts, frame) + offset;
        mark = new Watermark(lastMark);
        return true;
    }
}
