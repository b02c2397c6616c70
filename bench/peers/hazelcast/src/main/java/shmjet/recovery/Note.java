package shmjet.recovery;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.UUID;

/** What one sink has had: items, and when the first and the last of them came, as _recovery_jobs.py writes it. */
final class Note {
    private static final int SIZE = 24;
    private static final double NS = 1e9;

    private final Path path;
    private MappedByteBuffer buffer;
    private long count;

    Note(String folder, String attempt) {
        path = Path.of(folder, attempt + "." + UUID.randomUUID());
    }

    /** Take an item. System.nanoTime is the monotonic clock of the host. */
    void add() throws IOException {
        double now = System.nanoTime() / NS;
        if (buffer == null) {
            try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
                buffer = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, SIZE);
            }
            buffer.order(ByteOrder.LITTLE_ENDIAN);
            buffer.putDouble(Long.BYTES, now);
        }
        buffer.putDouble(Long.BYTES + Double.BYTES, now);
        buffer.putLong(0, ++count);
    }
}
