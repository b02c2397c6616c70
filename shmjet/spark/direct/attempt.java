// Second part of the class of `writer.java`: how its task talks to the job. The messages and the layout are those of
// `shmjet/spark/protocol.py` and `docs/formats/spark-feed.md`.

/** One attempt of a partition: its socket to the processor that takes it, and the records that it writes. */
static final class Attempt {
    final String execution;
    final long round;
    final boolean streams;
    final long partition;
    final long number;
    final org.apache.spark.TaskContext context;
    final Wire wire;
    long[] winner;
    long slotSize;
    java.nio.channels.FileChannel area;
    java.nio.channels.FileChannel spill;
    long slot = -1;
    long at;
    boolean isWanted;
    long spilled;
    long records;
    long frames;
    long rows;
    long handedOver = System.nanoTime();

    /** @param references as `direct.py` gives them: member, execution, feed, processors, round, ..., host, its name */
    Attempt(Object[] references, int partition) throws java.io.IOException {
        this.execution = (String) references[1];
        this.round = Long.parseLong((String) references[4]);
        this.streams = references[5].equals("true");
        this.partition = partition;
        this.context = org.apache.spark.TaskContext.get();
        this.number = context == null ? 0 : context.taskAttemptId();
        checkHost((String) references[9], (String) references[10]);
        this.wire = new Wire((String) references[0]);
        boolean isOpen = false;
        try {
            long processor = partition % Long.parseLong((String) references[3]);
            connect((String) references[2] + "/" + processor);
            isOpen = true;
        } finally {
            if (!isOpen) {
                wire.close();
            }
        }
    }

    void checkHost(String id, String name) throws java.io.IOException {
        java.nio.file.Path file = java.nio.file.Paths.get("/proc/sys/kernel/random/boot_id", new String[0]);
        String here = new String(java.nio.file.Files.readAllBytes(file), "UTF-8").trim();
        if (!here.equals(id)) {
            throw new RuntimeException("this Spark task runs on another host than the shmjet job, which is on '" + name
                + "': a feed reaches executors on the job's own host only; use master local[N] or local-cluster");
        }
    }

    void connect(String endpoint) throws java.io.IOException {
        wire.send(new Object[] {"ConnectInline", Long.valueOf(1), Long.valueOf(execution), endpoint});
        Object[] answer = wire.receive(this);
        while (!answer[0].equals("EndpointConnected")) {
            if (answer[0].equals("Refused")) {
                throw ended(String.valueOf(answer[3]));
            }
            answer = wire.receive(this); // a member tells all clients what happens to jobs
        }
        wire.send(new Object[] {"Hello", Boolean.FALSE, Boolean.TRUE});
        Object[] welcome = wire.receive(this);
        slotSize = ((Long) welcome[2]).longValue();
        area = open((String) welcome[4]);
        wire.send(new Object[] {"Begin", Long.valueOf(round), Long.valueOf(partition), Long.valueOf(number)});
    }

    java.nio.channels.FileChannel open(String path) throws java.io.IOException {
        return java.nio.channels.FileChannel.open(
            java.nio.file.Paths.get(path, new String[0]),
            new java.nio.file.OpenOption[] {java.nio.file.StandardOpenOption.WRITE});
    }

    RuntimeException ended(String why) {
        return new RuntimeException("the shmjet job that this Spark task feeds (execution " + execution
            + ") has ended; its own error, if it has one, says why (" + why + ")");
    }

    /** Bytes of a frame that fits one slot. */
    long most() {
        return slotSize - 64;
    }

    /** Write a frame, in pieces if it is larger than a slot; nothing when another attempt has won. */
    void write(Frame frame, int count) throws java.io.IOException {
        if (context != null && context.isInterrupted()) {
            throw new org.apache.spark.TaskKilledException("the task is told to end");
        }
        long done = 0;
        while (done < frame.size || frame.size == 0) {
            if (spill == null) {
                makeRoom(64 + padded(Math.min(frame.size - done, slotSize - 64)));
                if (winner != null) {
                    return;
                }
            }
            java.nio.channels.FileChannel file = spill == null ? area : spill;
            long place = spill == null ? slot * slotSize + at : spilled;
            long length = spill == null ? Math.min(frame.size - done, slotSize - 64) : frame.size - done;
            boolean isLast = done + length == frame.size;
            record(frame, done, length, isLast ? count : 0, file, place);
            done += length;
            if (spill == null) {
                at += 64 + padded(length);
            } else {
                spilled += 64 + padded(length);
            }
            if (isLast) {
                break;
            }
        }
        frames++;
        rows += count;
        if (streams && slot >= 0 && System.nanoTime() - handedOver > 20000000L) {
            turnIn();
        }
    }

    void record(Frame frame, long done, long length, long count, java.nio.channels.FileChannel file, long place)
            throws java.io.IOException {
        java.util.zip.CRC32 checksum = streams ? new java.util.zip.CRC32() : null;
        frame.write(done, length, file, place + 64, checksum);
        java.nio.ByteBuffer head = java.nio.ByteBuffer.allocate(64);
        head.order(java.nio.ByteOrder.LITTLE_ENDIAN);
        head.putInt($content).putInt(checksum == null ? 0 : (int) checksum.getValue());
        head.putLong(records).putLong(count).putLong(length).putLong(frame.size).putLong(done);
        head.position(0);
        head.limit(64);
        while (head.hasRemaining()) {
            place += file.write(head, place);
        }
        long rest = padded(length) - length;
        if (file == spill && rest > 0) { // a file ends where its last record does
            java.nio.ByteBuffer gap = java.nio.ByteBuffer.allocate((int) rest);
            long end = place + length;
            while (gap.hasRemaining()) {
                end += file.write(gap, end);
            }
        }
        records++;
    }

    long padded(long length) {
        return (length + 63) / 64 * 64;
    }

    /** Have a slot with room for so many bytes, or the file, or know the winner. Waits as long as it takes. */
    void makeRoom(long size) throws java.io.IOException {
        if (slot >= 0) {
            if (at + size <= slotSize) {
                return;
            }
            turnIn();
        }
        if (!isWanted) {
            wire.send(new Object[] {"Want"});
        }
        isWanted = false;
        Object[] answer = wire.receive(this);
        if (answer[0].equals("Grant")) {
            slot = ((Long) answer[1]).longValue();
            at = 0;
            wire.send(new Object[] {"Want"});
            isWanted = true;
        } else if (answer[0].equals("Spill")) {
            spill = open((String) answer[1]);
        } else {
            refused(answer);
        }
    }

    void refused(Object[] answer) throws java.io.IOException {
        if (!answer[0].equals("Superseded")) {
            throw ended(String.valueOf(answer.length > 1 ? answer[1] : answer[0]));
        }
        wire.send(new Object[] {"Abandon"});
        winner = receipt(answer[1]);
    }

    void turnIn() throws java.io.IOException {
        if (slot >= 0) {
            wire.send(new Object[] {"Filled", Long.valueOf(slot), Long.valueOf(at)});
            handedOver = System.nanoTime();
            slot = -1;
        }
    }

    /** Say that this is all; the receipt of who has won. */
    long[] end() throws java.io.IOException {
        if (winner == null) {
            turnIn();
            wire.send(new Object[] {"End", Long.valueOf(frames), Long.valueOf(rows), Long.valueOf(spilled)});
            while (winner == null) {
                Object[] answer = wire.receive(this);
                if (answer[0].equals("Verdict")) {
                    winner = receipt(answer[1]);
                } else if (!answer[0].equals("Grant") && !answer[0].equals("Spill")) {
                    refused(answer);
                }
            }
        }
        return winner;
    }

    long[] receipt(Object told) {
        Object[] values = (Object[]) told;
        long[] found = new long[4];
        for (int i = 0; i < 4; i++) {
            found[i] = ((Long) values[i]).longValue();
        }
        return found;
    }

    void close() throws java.io.IOException {
        wire.close();
        if (area != null) {
            area.close();
        }
        if (spill != null) {
            spill.close();
        }
    }
}

/** Messages over a Unix socket: four bytes of length, one of descriptors (none), msgpack. */
static final class Wire {
    final java.nio.channels.SocketChannel socket;
    java.nio.ByteBuffer body;

    Wire(String path) throws java.io.IOException {
        socket = java.nio.channels.SocketChannel.open(
            (java.net.SocketAddress) java.net.UnixDomainSocketAddress.of(path));
    }

    void close() throws java.io.IOException {
        socket.close();
    }

    void send(Object[] message) throws java.io.IOException {
        java.io.ByteArrayOutputStream bytes = new java.io.ByteArrayOutputStream();
        java.io.DataOutputStream out = new java.io.DataOutputStream(bytes);
        out.writeByte(0x90 | message.length);
        for (int i = 0; i < message.length; i++) {
            if (message[i] instanceof String) {
                byte[] text = ((String) message[i]).getBytes(java.nio.charset.StandardCharsets.UTF_8);
                out.writeByte(0xda);
                out.writeShort(text.length);
                out.write(text, 0, text.length);
            } else if (message[i] instanceof Boolean) {
                out.writeByte(((Boolean) message[i]).booleanValue() ? 0xc3 : 0xc2);
            } else {
                out.writeByte(0xd3);
                out.writeLong(((Long) message[i]).longValue());
            }
        }
        java.nio.ByteBuffer packet = java.nio.ByteBuffer.allocate(5 + bytes.size());
        packet.order(java.nio.ByteOrder.LITTLE_ENDIAN);
        packet.putInt(bytes.size()).put((byte) 0).put(bytes.toByteArray());
        packet.position(0);
        while (packet.hasRemaining()) {
            socket.write(packet);
        }
    }

    /** The next message, however long it takes to come; a task that is told to end is interrupted. */
    Object[] receive(Attempt attempt) throws java.io.IOException {
        java.nio.ByteBuffer head = read(5, attempt);
        head.order(java.nio.ByteOrder.LITTLE_ENDIAN);
        body = read(head.getInt(0), attempt);
        return (Object[]) value();
    }

    java.nio.ByteBuffer read(int size, Attempt attempt) throws java.io.IOException {
        java.nio.ByteBuffer bytes = java.nio.ByteBuffer.allocate(size);
        while (bytes.hasRemaining()) {
            if (socket.read(bytes) < 0) {
                throw attempt.ended("it has hung up");
            }
        }
        bytes.position(0);
        return bytes;
    }

    Object value() {
        int kind = body.get() & 0xff;
        if (kind < 0x80 || kind >= 0xe0) {
            return Long.valueOf((long) (byte) kind);
        }
        if ((kind & 0xf0) == 0x80) {
            return values(2 * (kind & 0x0f));
        }
        if ((kind & 0xf0) == 0x90) {
            return values(kind & 0x0f);
        }
        if ((kind & 0xe0) == 0xa0) {
            return text(kind & 0x1f);
        }
        switch (kind) {
            case 0xc0: return null;
            case 0xc2: return Boolean.FALSE;
            case 0xc3: return Boolean.TRUE;
            case 0xc4: return text(body.get() & 0xff);
            case 0xc5: return text(body.getShort() & 0xffff);
            case 0xc6: return text(body.getInt());
            case 0xcb: return Double.valueOf(body.getDouble());
            case 0xcc: return Long.valueOf((long) (body.get() & 0xff));
            case 0xcd: return Long.valueOf((long) (body.getShort() & 0xffff));
            case 0xce: return Long.valueOf((long) body.getInt() & 0xffffffffL);
            case 0xcf: return Long.valueOf(body.getLong());
            case 0xd0: return Long.valueOf((long) body.get());
            case 0xd1: return Long.valueOf((long) body.getShort());
            case 0xd2: return Long.valueOf((long) body.getInt());
            case 0xd3: return Long.valueOf(body.getLong());
            case 0xd9: return text(body.get() & 0xff);
            case 0xda: return text(body.getShort() & 0xffff);
            case 0xdb: return text(body.getInt());
            case 0xdc: return values(body.getShort() & 0xffff);
            default: throw new RuntimeException("the shmjet job says what no Spark task understands: " + kind);
        }
    }

    Object[] values(int count) {
        Object[] found = new Object[count];
        for (int i = 0; i < count; i++) {
            found[i] = value();
        }
        return found;
    }

    String text(int size) {
        byte[] bytes = new byte[size];
        body.get(bytes);
        return new String(bytes, java.nio.charset.StandardCharsets.UTF_8);
    }
}
