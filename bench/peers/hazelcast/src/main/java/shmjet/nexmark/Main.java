package shmjet.nexmark;

import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.jet.Job;
import com.hazelcast.jet.accumulator.LongAccumulator;
import com.hazelcast.jet.core.JobStatus;
import com.hazelcast.jet.pipeline.Pipeline;
import com.hazelcast.jet.pipeline.Sink;
import com.hazelcast.jet.pipeline.SinkBuilder;
import com.hazelcast.jet.pipeline.Sinks;
import com.hazelcast.jet.pipeline.StreamStage;
import shmjet.Members;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.concurrent.ConcurrentLinkedQueue;

/**
 * Runs NEXMark on an embedded member, as it is told on stdin; argument: the number of cooperative threads. A line of
 * "answers|replay|generate|latency QUERY RATE KEYS WINDOW_MS SLIDE_MS LENGTH" is answered on stdout by lines of JSON,
 * of which the last one is the object {"done": ...}:
 *
 * answers: the results of the events of LENGTH milliseconds of event time, an array each;
 * replay: done is how many seconds the same took without looking at the results;
 * generate: the same of the events alone, without the query;
 * latency: the latencies of LENGTH milliseconds by schedule, an array [due, latency] each.
 */
public final class Main {
    private static final long START_DELAY_MS = 10;
    private static final long CLOCK_SKEW_MS = -1;

    private static final ConcurrentLinkedQueue<Object[]> FOUND = new ConcurrentLinkedQueue<>();

    private final HazelcastInstance member;
    private final PrintStream out;

    private Main(HazelcastInstance member, PrintStream out) {
        this.member = member;
        this.out = out;
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream out = System.out;
        System.setOut(System.err);
        HazelcastInstance member = Members.start(Integer.parseInt(arguments[0]));
        try {
            out.println("{\"done\": \"ready\"}");
            out.flush();
            Main running = new Main(member, out);
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                running.obey(line.trim().split(" "));
                out.flush();
            }
        } finally {
            member.shutdown();
        }
    }

    private void obey(String[] words) {
        int number = Integer.parseInt(words[1]);
        Load load = new Load(Long.parseLong(words[2]), Long.parseLong(words[3]), Long.parseLong(words[4]),
                Long.parseLong(words[5]));
        long length = Long.parseLong(words[6]);
        FOUND.clear();
        String done = switch (words[0]) {
            case "answers" -> answers(number, load, length);
            case "replay" -> replay(number, load, length);
            case "generate" -> generate(number, load, length);
            case "latency" -> latency(number, load, length);
            default -> throw new IllegalArgumentException(words[0]);
        };
        for (Object[] row : FOUND) {
            out.println(json(row));
        }
        FOUND.clear();
        out.println("{\"done\": " + done + "}");
    }

    private String answers(int number, Load load, long spanMs) {
        Pipeline pipeline = Pipeline.create();
        collect(Queries.of(number, new Replay(pipeline, spanMs), load));
        return seconds(pipeline);
    }

    private <T> void collect(Queries.Query<T> query) {
        Queries.Look<T> look = query.look();
        query.stage().map(result -> look.fields(result)).setLocalParallelism(1).writeTo(found());
    }

    private String replay(int number, Load load, long spanMs) {
        Pipeline pipeline = Pipeline.create();
        Queries.of(number, new Replay(pipeline, spanMs), load).stage().writeTo(Sinks.noop());
        return seconds(pipeline);
    }

    private String generate(int number, Load load, long spanMs) {
        Pipeline pipeline = Pipeline.create();
        for (Events.Stream<?> stream : Queries.streams(number, load)) {
            new Replay(pipeline, spanMs).read(stream).writeTo(Sinks.noop());
        }
        return seconds(pipeline);
    }

    private String latency(int number, Load load, long lengthMs) {
        Pipeline pipeline = Pipeline.create();
        measured(Queries.of(number, new Schedule(pipeline, System.currentTimeMillis() + START_DELAY_MS), load));
        Job job = member.getJet().newJob(pipeline);
        try {
            Thread.sleep(lengthMs);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        JobStatus status = job.getStatus();
        job.cancel();
        try {
            job.join();
        } catch (Exception e) {
            if (status == JobStatus.FAILED) {
                throw e;
            }
        }
        return "\"" + status + "\"";
    }

    private <T> void measured(Queries.Query<T> query) {
        Queries.Due<T> due = query.due();
        Queries.Sieve<T> sieve = query.sieve();
        query.stage()
                .filter(result -> sieve.keeps(result))
                .map(result -> due.of(result))
                .mapStateful(() -> new LongAccumulator(-1), Main::late)
                .writeTo(found());
    }

    private static Object[] late(LongAccumulator last, long due) {
        if (due <= last.get()) {
            return null;
        }
        last.set(due);
        long late = System.currentTimeMillis() - due;
        if (late < CLOCK_SKEW_MS) {
            throw new IllegalStateException("a result that is due at " + due + " came " + -late + " ms early");
        }
        return new Object[]{due, Math.max(0, late)};
    }

    private static Sink<Object[]> found() {
        return SinkBuilder.sinkBuilder("found", context -> FOUND)
                .<Object[]>receiveFn((queue, row) -> queue.add(row))
                .preferredLocalParallelism(1)
                .build();
    }

    private String seconds(Pipeline pipeline) {
        long begin = System.nanoTime();
        member.getJet().newJob(pipeline).join();
        return Double.toString((System.nanoTime() - begin) / 1e9);
    }

    private record Replay(Pipeline pipeline, long spanMs) implements Queries.Reader {
        @Override
        public <T> StreamStage<T> read(Events.Stream<T> stream) {
            return pipeline.readFrom(EventSource.of(stream, stream.count(spanMs), 0)).withNativeTimestamps(0);
        }
    }

    private record Schedule(Pipeline pipeline, long startMs) implements Queries.Reader {
        @Override
        public <T> StreamStage<T> read(Events.Stream<T> stream) {
            return pipeline.readFrom(EventSource.of(stream, -1, startMs)).withNativeTimestamps(0);
        }
    }

    private static String json(Object value) {
        if (value instanceof Object[] items) {
            StringBuilder text = new StringBuilder("[");
            for (Object item : items) {
                text.append(text.length() > 1 ? "," : "").append(json(item));
            }
            return text.append("]").toString();
        }
        return value instanceof String ? "\"" + value + "\"" : String.valueOf(value);
    }
}
