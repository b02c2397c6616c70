package shmjet;

import com.hazelcast.config.Config;
import com.hazelcast.core.Hazelcast;
import com.hazelcast.core.HazelcastInstance;

/** Members of Hazelcast for benchmarks: alone, on this host, without backups. */
public final class Members {
    private Members() {
    }

    /** Start a member with a number of cooperative threads. */
    public static HazelcastInstance start(int threads) {
        return Hazelcast.newHazelcastInstance(config(threads));
    }

    /** Return the settings of such a member. */
    public static Config config(int threads) {
        Config config = new Config();
        config.setProperty("hazelcast.logging.type", "none");
        config.setProperty("hazelcast.phone.home.enabled", "false");
        config.setProperty("hazelcast.socket.bind.any", "false");
        config.setProperty("hazelcast.local.localAddress", "127.0.0.1");
        config.getNetworkConfig().getInterfaces().setEnabled(true).addInterface("127.0.0.1");
        config.getNetworkConfig().getJoin().getMulticastConfig().setEnabled(false);
        config.getNetworkConfig().getJoin().getAutoDetectionConfig().setEnabled(false);
        config.getMetricsConfig().setEnabled(false);
        config.getJetConfig().setEnabled(true).setCooperativeThreadCount(threads).setBackupCount(0);
        return config;
    }
}
