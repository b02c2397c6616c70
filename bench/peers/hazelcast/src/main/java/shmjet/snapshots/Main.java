package shmjet.snapshots;

import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.jet.Job;
import com.hazelcast.jet.aggregate.AggregateOperations;
import com.hazelcast.jet.config.JobConfig;
import com.hazelcast.jet.config.ProcessingGuarantee;
import com.hazelcast.jet.impl.JobExecutionRecord;
import com.hazelcast.jet.pipeline.Pipeline;
import com.hazelcast.jet.pipeline.Sink;
import com.hazelcast.jet.pipeline.SinkBuilder;
import com.hazelcast.jet.pipeline.SourceBuilder;
import com.hazelcast.jet.pipeline.StreamSource;
import com.hazelcast.map.IMap;
import shmjet.Members;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Keeps counts and sums by key in a job that stands still, and takes snapshots of it; arguments: the number of
 * cooperative threads, and of keys. Says {"done": "ready"} when the state is full; each line on stdin is then answered
 * by the seconds that the next snapshot took, by Hazelcast's own record of it.
 */
public final class Main {
    private static final long INTERVAL_MS = 200;
    private static final long LOOK_MS = 5;
    private static final int AT_ONCE = 1024;

    private static final AtomicLong COUNTED = new AtomicLong();

    private Main() {
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        PrintStream out = System.out;
        System.setOut(System.err);
        long keys = Long.parseLong(arguments[1]);
        HazelcastInstance member = Members.start(Integer.parseInt(arguments[0]));
        try {
            Job job = member.getJet().newJob(counts(keys), new JobConfig()
                    .setProcessingGuarantee(ProcessingGuarantee.EXACTLY_ONCE)
                    .setSnapshotIntervalMillis(INTERVAL_MS));
            while (COUNTED.get() < keys) {
                Thread.sleep(LOOK_MS);
            }
            next(member, job, System.currentTimeMillis());
            say(out, "\"ready\"");
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                say(out, Double.toString(next(member, job, System.currentTimeMillis()) / 1e3));
            }
        } finally {
            member.shutdown();
        }
    }

    private static Pipeline counts(long keys) {
        StreamSource<Long> numbers = SourceBuilder.stream("numbers", context -> new long[1])
                .<Long>fillBufferFn((next, buffer) -> {
                    for (int i = 0; i < AT_ONCE && next[0] < keys; i++) {
                        buffer.add(next[0]++);
                    }
                })
                .build();
        Sink<Object> counted = SinkBuilder.sinkBuilder("counted", context -> COUNTED)
                .receiveFn((count, item) -> count.incrementAndGet())
                .build();
        Pipeline pipeline = Pipeline.create();
        pipeline.readFrom(numbers)
                .withoutTimestamps()
                .groupingKey(number -> number)
                .rollingAggregate(AggregateOperations.allOf(
                        AggregateOperations.counting(), AggregateOperations.summingLong(number -> number)))
                .writeTo(counted);
        return pipeline;
    }

    /** Wait for a snapshot that begins after a moment, and return how many milliseconds it took. */
    private static long next(HazelcastInstance member, Job job, long after) throws InterruptedException {
        IMap<Long, JobExecutionRecord> records = member.getMap("__jet.executionRecords");
        while (true) {
            JobExecutionRecord record = records.get(job.getId());
            if (record != null && record.snapshotStats() != null && record.snapshotStats().startTime() > after) {
                return record.snapshotStats().duration();
            }
            Thread.sleep(LOOK_MS);
        }
    }

    private static void say(PrintStream out, String done) {
        out.println("{\"done\": " + done + "}");
        out.flush();
    }
}
