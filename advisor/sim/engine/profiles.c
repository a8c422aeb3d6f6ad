/* The formulas of training speed; docs/profiles.md describes the meaning, the sources and the error of each. */

/* The spread exponent counts up to here: no data set shows a steady growth of the traffic beyond. */
#define MOST_NODES 4.0

/* Return the time per step at `gpus` GPUs on the best placement, same global batch, in steps of one GPU. */
static double step_s(const Profile *profile, int64_t gpus) {
    double serial = profile->serial_ratio;
    return serial + (1.0 - serial) / (double)gpus + profile->sync_ratio * log2((double)gpus);
}

/* Return the communication that a gang waits for, per unit of its run time without it; 0 on one node.
 *
 * `bandwidth_gbps` is what the slowest link gives to one node of the gang, divided by how fast the gang computes: by
 * the speed of its GPU type relative to a V100 and, for a resized job, by step_s(asked) / step_s(held).
 */
static double exposed_s(const Profile *profile, int64_t gpus, int64_t nodes, double bandwidth_gbps) {
    if (nodes <= 1) return 0.0;
    double spread = pow(least((double)nodes, MOST_NODES) / 2.0, profile->spread_exponent);
    double traffic_gbps = profile->traffic_gbps * spread * 2.0 * ((double)gpus - 1.0) / (double)gpus;
    return most(0.0, traffic_gbps / most(bandwidth_gbps, 1e-9) - profile->overlap_ratio);
}

/* Return the run time on this placement over that on the best one; 1 if the model runs faster when spread. */
static double inflation(const Profile *profile, int64_t gpus, int64_t nodes, double bandwidth_gbps, int64_t best_nodes,
                        double best_bandwidth_gbps) {
    double here = 1.0 + exposed_s(profile, gpus, nodes, bandwidth_gbps);
    double best = 1.0 + exposed_s(profile, gpus, best_nodes, best_bandwidth_gbps);
    return most(1.0, here / best);
}

/* Return the run time of a job that shares its GPU with another over its run time alone, at least 1. */
static double gpu_share_inflation(const Profile *mine, const Profile *other) {
    return most(1.0, mine->gpu_need + other->gpu_pressure);
}

/* Return what a NIC leaves to a gang beside other multi-node gangs; `pressure` sums their node_pressure. */
static double contended_gbps(double bandwidth_gbps, double pressure) { return bandwidth_gbps / (1.0 + pressure); }
