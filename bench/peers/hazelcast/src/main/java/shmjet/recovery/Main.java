package shmjet.recovery;

import com.hazelcast.config.Config;
import com.hazelcast.core.Hazelcast;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.jet.config.JobConfig;
import com.hazelcast.jet.config.ProcessingGuarantee;
import com.hazelcast.jet.pipeline.Pipeline;
import com.hazelcast.jet.pipeline.Sink;
import com.hazelcast.jet.pipeline.SinkBuilder;
import com.hazelcast.jet.pipeline.SourceBuilder;
import com.hazelcast.jet.pipeline.StreamSource;
import shmjet.Members;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.Serializable;
import java.util.concurrent.ThreadLocalRandom;

/**
 * A member of a cluster on this host; arguments: the number of cooperative threads, its port, that of the first member,
 * milliseconds from a join to the restart of jobs. Says {"done": "ready"} when it is up. A line on stdin,
 * "SIZE KEYS BYTES FOLDER", has it wait for so many members and start the job of _recovery_jobs.py.
 */
public final class Main {
    private static final int AT_ONCE = 1024;
    private static final long INTERVAL_MS = 500;
    private static final long PERIOD_NS = 1_000_000;
    private static final long LOOK_MS = 5;

    private Main() {
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        PrintStream out = System.out;
        System.setOut(System.err);
        Config config = Members.config(Integer.parseInt(arguments[0]));
        config.getNetworkConfig().setPort(Integer.parseInt(arguments[1])).setPortAutoIncrement(false);
        config.getNetworkConfig().getJoin().getTcpIpConfig().setEnabled(true).addMember("127.0.0.1:" + arguments[2]);
        config.getJetConfig().setBackupCount(1).setScaleUpDelayMillis(Long.parseLong(arguments[3]));
        HazelcastInstance member = Hazelcast.newHazelcastInstance(config);
        try {
            say(out, "ready");
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ", 4);
                while (member.getCluster().getMembers().size() < Integer.parseInt(words[0])) {
                    Thread.sleep(LOOK_MS);
                }
                member.getJet().newJob(counting(Integer.parseInt(words[1]), Integer.parseInt(words[2]), words[3]),
                        new JobConfig()
                                .setProcessingGuarantee(ProcessingGuarantee.EXACTLY_ONCE)
                                .setSnapshotIntervalMillis(INTERVAL_MS));
                say(out, "started");
            }
        } finally {
            member.shutdown();
        }
    }

    private static Pipeline counting(int keys, int bytes, String folder) {
        StreamSource<Integer> numbers = SourceBuilder.stream("numbers", context -> new Numbers())
                .<Integer>fillBufferFn((mine, buffer) -> {
                    if (mine.next < keys) {
                        for (int i = 0; i < AT_ONCE && mine.next < keys; i++) {
                            buffer.add((int) mine.next++);
                        }
                    } else if (System.nanoTime() >= mine.due) {
                        mine.due = System.nanoTime() + PERIOD_NS;
                        buffer.add((int) (mine.next++ % keys));
                    }
                })
                .createSnapshotFn(mine -> mine.next)
                .restoreSnapshotFn((mine, saved) -> mine.next = saved.get(0))
                .distributed(1)
                .build();
        Sink<Integer> noted = SinkBuilder
                .sinkBuilder("noted", context -> new Note(folder, Long.toHexString(context.executionId())))
                .<Integer>receiveFn((note, item) -> note.add())
                .preferredLocalParallelism(1)
                .build();
        Pipeline pipeline = Pipeline.create();
        pipeline.readFrom(numbers)
                .withoutTimestamps()
                .groupingKey(number -> number)
                .mapStateful(() -> new State(bytes), (state, key, number) -> {
                    state.count++;
                    return number;
                })
                .setLocalParallelism(1)
                .writeTo(noted);
        return pipeline;
    }

    private static void say(PrintStream out, String done) {
        out.println("{\"done\": \"" + done + "\"}");
        out.flush();
    }

    /** A source's position, and when its next number is due. */
    private static final class Numbers {
        private long next;
        private long due;
    }

    /** What is kept for a key. */
    private static final class State implements Serializable {
        private final byte[] value;
        private long count;

        State(int bytes) {
            value = new byte[bytes];
            ThreadLocalRandom.current().nextBytes(value);
        }
    }
}
