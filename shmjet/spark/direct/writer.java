// The body of a class that Spark compiles in its own processes, as it does with the code that it generates for queries
// (Janino: plain Java, without generics, lambdas or resources in `try`). It runs one task of a feed: reads the rows of
// a partition, makes batches of them and writes these into the memory of a running job. What `shmjet/spark/task.py`
// does in a Python worker, this does without one; the messages and the layout are the same (`protocol.py`,
// `docs/formats/spark-feed.md`, `docs/formats/batch.md`). What follows a dollar sign is filled in for each schema
// (`source.py`).

public Object generate(Object[] references) {
    return new Feeder(references);
}

/** The task. Its only row is the receipt: partition, attempt, frames and rows of the attempt that has won. */
final class Feeder extends org.apache.spark.sql.execution.BufferedRowIterator {
    final Object[] references;
    scala.collection.Iterator input;
    org.apache.spark.sql.catalyst.expressions.UnsafeRow held;
    org.apache.spark.sql.catalyst.expressions.UnsafeProjection projection;
    boolean isDone;

    Feeder(Object[] references) {
        this.references = references;
    }

    public void init(int index, scala.collection.Iterator[] inputs) {
        partitionIndex = index;
        input = inputs[0];
    }

    protected void processNext() throws java.io.IOException {
        if (isDone) {
            return;
        }
        isDone = true;
        Attempt attempt = new Attempt(references, partitionIndex);
        try {
            long[] receipt = feed(attempt);
            Object[] values = new Object[4];
            for (int i = 0; i < 4; i++) {
                values[i] = Long.valueOf(receipt[i]);
            }
            append(new org.apache.spark.sql.catalyst.expressions.GenericInternalRow(values));
        } finally {
            attempt.close();
        }
    }

    long[] feed(Attempt attempt) throws java.io.IOException {
        Columns columns = new Columns((String) references[7], Integer.parseInt((String) references[6]), attempt.most());
        while (attempt.winner == null && fill(columns)) {
            attempt.write(columns.frame(), columns.rows);
            columns.clear();
        }
        return attempt.end();
    }

    /** Take rows as far as there is room; false when there are none. A call for each frame, so that Java compiles it. */
    boolean fill(Columns columns) throws java.io.IOException {
        while (held != null || input.hasNext()) {
            org.apache.spark.sql.catalyst.expressions.UnsafeRow row = held == null ? nextUnsafe() : held;
            if (!columns.hasRoom(row)) {
                held = row; // it is whole until the next one is asked for
                return true;
            }
            held = null;
            columns.add(row);
        }
        return columns.rows > 0;
    }

    org.apache.spark.sql.catalyst.expressions.UnsafeRow nextUnsafe() {
        Object row = input.next();
        if (row instanceof org.apache.spark.sql.catalyst.expressions.UnsafeRow) {
            return (org.apache.spark.sql.catalyst.expressions.UnsafeRow) row;
        }
        if (projection == null) {
            projection = org.apache.spark.sql.catalyst.expressions.UnsafeProjection.create(
                (org.apache.spark.sql.types.StructType) references[8]);
        }
        return projection.apply((org.apache.spark.sql.catalyst.InternalRow) row);
    }
}

/** Rows as columns, until they are a frame. */
static final class Columns {
    final String[] schema;
    final int most;
    final long limit;
    final byte[][] fixed = new byte[$columns][];
    final byte[][] ends = new byte[$columns][];
    final byte[][] texts = new byte[$columns][];
    final int[] used = new int[$columns];
    final byte[][] masks = new byte[$columns][];
    final boolean[] nulls = new boolean[$columns];
    int rows;
    long size;

    /**
     * @param schema of a column with and of one without a mask, in turn, for all columns; parted by newlines
     * @param batchRows of a frame, at most
     * @param limit bytes of a frame that fits a slot
     */
    Columns(String schema, int batchRows, long limit) {
        this.schema = schema.split("\n");
        long room = limit - 16 - schema.length() - $columns * 3 * 72L;
        // Rows so wide that a slot holds but a few of them fill several slots.
        this.limit = Math.max(room, Math.min(batchRows, 1024) * $widthL);
        this.most = (int) Math.min((long) batchRows, this.limit / $width);
        $allocations
        clear();
    }

    /** Whether another row still fits; the first always does. */
    boolean hasRoom(org.apache.spark.sql.catalyst.expressions.UnsafeRow row) {
        return rows < most && ($isFixed || rows == 0 || size + row.getSizeInBytes() + $width <= limit);
    }

    void add(org.apache.spark.sql.catalyst.expressions.UnsafeRow row) {
        int n = rows;
        $calls
        rows = n + 1;
        size += $width;
    }

$cells
    /** Append the bytes of a value; the bytes of a row are padded to eights, so whole ones may be read. */
    void text(int column, int n, org.apache.spark.sql.catalyst.expressions.UnsafeRow row, long place) {
        int length = (int) place;
        int at = used[column];
        int end = at + length;
        byte[] target = texts[column];
        if (target.length - 8 < end) {
            target = java.util.Arrays.copyOf(target, (int) Math.min(2147483639L, Math.max(2L * target.length, end + 8L)));
            texts[column] = target;
        }
        Object base = row.getBaseObject();
        long from = row.getBaseOffset() + (place >>> 32);
        long to = (long) org.apache.spark.unsafe.Platform.BYTE_ARRAY_OFFSET + at;
        if (length <= 64) {
            for (int i = 0; i < length; i += 8) {
                org.apache.spark.unsafe.Platform.putLong(
                    target, to + i, org.apache.spark.unsafe.Platform.getLong(base, from + i));
            }
        } else {
            org.apache.spark.unsafe.Platform.copyMemory(base, from, target, to, (long) length);
        }
        used[column] = end;
        size += length;
        end(column, n, end);
    }

    void end(int column, int n, int end) {
        org.apache.spark.unsafe.Platform.putLong(
            ends[column], org.apache.spark.unsafe.Platform.BYTE_ARRAY_OFFSET + 8L * (n + 1), (long) end);
    }

    void missing(int column, int n) {
        masks[column][n] = 0;
        nulls[column] = true;
    }

    /** The batch (`docs/formats/batch.md`), as views of what is here. */
    Frame frame() {
        Frame frame = new Frame($columns * 3);
        StringBuilder text = new StringBuilder("[");
        for (int i = 0; i < $columns; i++) {
            text.append(i == 0 ? "" : ", ").append(schema[2 * i + (nulls[i] ? 1 : 0)]);
        }
        byte[] described = text.append("]").toString().getBytes(java.nio.charset.StandardCharsets.UTF_8);
        $parts
        frame.begin(described, rows);
        return frame;
    }

    void part(Frame frame, int column, int width) {
        if (width > 0) {
            frame.add(fixed[column], width * rows);
        } else {
            frame.add(ends[column], 8 * (rows + 1));
            frame.add(texts[column], used[column]);
        }
        if (nulls[column]) {
            frame.add(masks[column], rows);
        }
    }

    void clear() {
        for (int i = 0; i < $columns; i++) {
            used[i] = 0;
            if (nulls[i]) {
                java.util.Arrays.fill(masks[i], (byte) 1);
                nulls[i] = false;
            }
            if (texts[i] != null && texts[i].length > 2 * limit + 1024) {
                texts[i] = new byte[1024];
            }
        }
        rows = 0;
        size = 0;
    }
}

/** Bytes that lie here and there, each part but the first at a multiple of 64 from the start. */
static final class Frame {
    byte[][] parts;
    int[] sizes;
    int count = 1;
    long size;
    final byte[] zeros = new byte[64];

    Frame(int most) {
        parts = new byte[2 * most + 1][];
        sizes = new int[2 * most + 1];
    }

    void add(byte[] part, int size) {
        parts[count] = zeros;
        sizes[count] = 0;
        parts[count + 1] = part;
        sizes[count + 1] = size;
        count += 2;
    }

    /** Write the head, now that all parts are here, and the gaps between parts. */
    void begin(byte[] schema, int rows) {
        int buffers = (count - 1) / 2;
        java.nio.ByteBuffer head = java.nio.ByteBuffer.allocate(16 + 8 * buffers + schema.length);
        head.order(java.nio.ByteOrder.LITTLE_ENDIAN);
        head.putInt(buffers).putInt(schema.length).putLong((long) rows);
        for (int i = 2; i < count; i += 2) {
            head.putLong((long) sizes[i]);
        }
        head.put(schema);
        parts[0] = head.array();
        sizes[0] = head.capacity();
        size = sizes[0];
        for (int i = 1; i < count; i += 2) {
            sizes[i] = (int) ((64 - size % 64) % 64);
            size += sizes[i] + (long) sizes[i + 1];
        }
    }

    /** Write a piece to a place of a file; `checksum` takes it too, unless it is null. */
    void write(long from, long length, java.nio.channels.FileChannel file, long place, java.util.zip.CRC32 checksum)
            throws java.io.IOException {
        long start = 0;
        for (int i = 0; i < count && length > 0; i++) {
            long skipped = Math.max(0L, from - start);
            start += sizes[i];
            if (skipped >= sizes[i]) {
                continue;
            }
            int taken = (int) Math.min(length, sizes[i] - skipped);
            if (checksum != null) {
                checksum.update(parts[i], (int) skipped, taken);
            }
            java.nio.ByteBuffer bytes = java.nio.ByteBuffer.wrap(parts[i], (int) skipped, taken);
            while (bytes.hasRemaining()) {
                // What lies on the heap is copied into memory that a thread keeps, as much as is written at once.
                bytes.limit(Math.min((int) skipped + taken, bytes.position() + 262144));
                place += file.write(bytes, place);
                bytes.limit((int) skipped + taken);
            }
            length -= taken;
        }
    }
}
