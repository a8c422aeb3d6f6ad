/* Node selection of the model of Slurm, as observed on slurmctld 22.05 with topology/tree.
 *
 * A job with a fixed node count that divides its GPUs takes the same number on every node; any other job takes free
 * GPUs in any numbers. It goes to the leaf with the fewest usable nodes that suffice, and there to the first nodes;
 * docs/fidelity.md has the observations.
 */

/* Return whether a node has the GPUs, CPUs and memory for a part of a gang. */
static inline bool fits(const State *s, const Job *job, int64_t node_row, int64_t gpus) {
    const Node *node = &s->nodes[node_row];
    return node->gpus_free >= gpus && node->is_up && (job->gpu_type == NONE || job->gpu_type == node->gpu_type) &&
           node->cpus_free >= gpus * job->cpus_per_gpu && node->memory_free_mib >= gpus * job->memory_mib_per_gpu;
}

static inline void add_to_pick(State *s, int64_t node_row, int64_t gpus) {
    s->pick_nodes[s->tally->picked] = (int32_t)node_row;
    s->pick_gpus[s->tally->picked] = (int32_t)gpus;
    s->tally->picked++;
}

/* Return the number of GPUs that a job takes on every node, 0 if it is open. */
EXPORT int64_t per_node(State *s, int64_t row) {
    const Job *job = &s->jobs[row];
    if (job->nodes_min == job->nodes_max || job->gpus == 1)
        return job->gpus % job->nodes_min == 0 ? job->gpus / job->nodes_min : 0;
    return 0;
}

/* Return whether a node has the GPUs now, and no reservation that begins by `until`. */
static inline bool is_open(const State *s, const Slurm *m, const Job *job, int64_t node, int64_t gpus, double until) {
    int32_t reserved = m->first[node];
    if (reserved != NONE && m->reservations[reserved].start_time <= until) return false;
    return fits(s, job, node, gpus);
}

/* Return the number of GPUs that a node can give a gang now, no more than it requests. */
static int64_t usable_gpus_until(const State *s, const Slurm *m, const Job *job, int64_t node, double until) {
    int64_t gpus = least_of(s->nodes[node].gpus_free, job->gpus);
    while (gpus > 0 && !is_open(s, m, job, node, gpus, until)) gpus--;
    return gpus;
}

/* Count the leaves of the picked nodes; the nodes of a leaf are adjacent. */
EXPORT int64_t leaves_picked(State *s) {
    int64_t count = 0;
    int32_t before = NONE;
    for (int64_t place = 0; place < s->tally->picked; place++) {
        int32_t leaf = s->nodes[s->pick_nodes[place]].leaf;
        if (leaf != before) {
            count++;
            before = leaf;
        }
    }
    return count;
}

/* Return the leaf with the fewest nodes with a share that suffices, else the one with the most; NONE without any. */
static int64_t next_leaf(State *s, Slurm *m, int64_t wanted) {
    int64_t best = NONE, fewest = s->n_nodes + 1, fullest = NONE, largest = 0;
    for (int64_t leaf = 0; leaf < s->n_leaves; leaf++) {
        int64_t begin = s->leaves[leaf].first, usable = 0;
        for (int64_t node = begin; node < begin + s->leaves[leaf].nodes; node++) usable += m->share[node] > 0;
        if (wanted <= usable && usable < fewest) {
            best = leaf;
            fewest = usable;
        }
        if (usable > largest) {
            fullest = leaf;
            largest = usable;
        }
    }
    return best != NONE ? best : fullest;
}

/* Pick `wanted` nodes of those with a share, by leaves: the one that just suffices, else the fullest and so on. */
static bool pick_alike(State *s, Slurm *m, int64_t gpus_each, int64_t wanted, int64_t most_leaves) {
    Tally *tally = s->tally;
    tally->picked = 0;
    if (wanted > 1) {
        int64_t usable = 0;
        for (int64_t node = 0; node < s->n_nodes; node++) usable += m->share[node] > 0;
        if (usable < wanted) return false;
    }
    int64_t leaves = 0;
    while (tally->picked < wanted) {
        int64_t leaf = next_leaf(s, m, wanted - tally->picked);
        if (leaf == NONE || ++leaves > most_leaves) return false;
        int64_t begin = s->leaves[leaf].first;
        for (int64_t node = begin; node < begin + s->leaves[leaf].nodes; node++) {
            if (m->share[node] > 0 && tally->picked < wanted) add_to_pick(s, node, gpus_each);
            m->share[node] = 0;
        }
    }
    return true;
}

/* Return the next node that gives `level` GPUs: under the leaves of the chosen ones, else leaf by leaf. */
static int64_t next_of_level(State *s, Slurm *m, int64_t level) {
    int64_t best = NONE, fewest = s->n_nodes + 1;
    for (int64_t leaf = 0; leaf < s->n_leaves; leaf++) {
        int64_t begin = s->leaves[leaf].first, front = NONE, usable = 0;
        bool is_used = false;
        for (int64_t node = begin; node < begin + s->leaves[leaf].nodes; node++) {
            is_used |= m->chosen[node] == 1;
            if (!m->chosen[node] && m->share[node] == level) {
                usable++;
                if (front == NONE) front = node;
            }
        }
        if (front != NONE && is_used) return front;
        if (front != NONE && usable < fewest) {
            best = front;
            fewest = usable;
        }
    }
    return best;
}

/* Remove a GPU from a picked node that has more than one. */
static bool spare_one(State *s) {
    for (int64_t place = 0; place < s->tally->picked; place++)
        if (s->pick_gpus[place] > 1) {
            s->pick_gpus[place]--;
            return true;
        }
    return false;
}

/* Sort the picked nodes, which makes those of a leaf adjacent. */
static void sort_pick(State *s) {
    for (int64_t place = 1; place < s->tally->picked; place++) {
        int32_t node = s->pick_nodes[place], gpus = s->pick_gpus[place];
        int64_t at = place;
        for (; at > 0 && s->pick_nodes[at - 1] > node; at--) {
            s->pick_nodes[at] = s->pick_nodes[at - 1];
            s->pick_gpus[at] = s->pick_gpus[at - 1];
        }
        s->pick_nodes[at] = node;
        s->pick_gpus[at] = gpus;
    }
}

/* Distribute the GPUs of a gang over its chosen nodes in order, at least one to every node that it needs. */
static bool hand_out(State *s, Slurm *m, const Job *job) {
    Tally *tally = s->tally;
    int64_t count = tally->picked, left = job->gpus;
    tally->picked = 0;
    for (int64_t node = 0; node < s->n_nodes; node++) {
        if (!m->chosen[node]) continue;
        count--;
        int64_t owed = most_of(0, least_of(count, job->nodes_min - tally->picked - 1));
        int64_t took = least_of(m->share[node], left - owed);
        add_to_pick(s, node, took);
        left -= took;
    }
    /* A gang that must spread further than its GPUs need takes single GPUs elsewhere; one at least is left for each. */
    for (int64_t node = 0; tally->picked < job->nodes_min && node < s->n_nodes; node++)
        if (!m->chosen[node] && m->share[node] > 0 && spare_one(s)) add_to_pick(s, node, 1);
    sort_pick(s);
    return left == 0 && tally->picked >= job->nodes_min;
}

/* Pick nodes for a gang whose node count is open: those with most usable GPUs first, until they suffice.
 *
 * Nodes with equally many are taken under leaves that are already in use, then leaf by leaf.
 */
static bool pick_shares(State *s, Slurm *m, int64_t row) {
    const Job *job = &s->jobs[row];
    Tally *tally = s->tally;
    tally->picked = 0;
    int64_t nodes_max = job->nodes_max == 0 ? s->n_nodes : job->nodes_max;
    int64_t left = job->gpus, level = least_of(s->rules->most_gpus, left);
    memset(m->chosen, 0, (size_t)m->n_chosen);
    while (left > 0 && level > 0 && tally->picked < nodes_max) {
        int64_t node = next_of_level(s, m, level);
        if (node == NONE) {
            level--;
            continue;
        }
        m->chosen[node] = 1;
        tally->picked++;
        left -= m->share[node];
    }
    return left <= 0 && hand_out(s, m, job);
}

/* Pick the first node under the leaf with the fewest nodes that can hold the job. */
static bool pick_single(State *s, Slurm *m, const Job *job, int64_t gpus, double until) {
    int64_t best = NONE, fewest = s->n_nodes + 1;
    for (int64_t leaf = 0; leaf < s->n_leaves; leaf++) {
        if (s->leaves[leaf].gpus_free < gpus) continue;
        int64_t begin = s->leaves[leaf].first, usable = 0, front = NONE;
        for (int64_t node = begin; node < begin + s->leaves[leaf].nodes; node++)
            if (s->nodes[node].gpus_free >= gpus && is_open(s, m, job, node, gpus, until)) {
                usable++;
                if (front == NONE) front = node;
            }
        if (0 < usable && usable < fewest) {
            fewest = usable;
            best = front;
        }
    }
    if (best == NONE) return false;
    add_to_pick(s, best, gpus);
    return true;
}

/* Pick nodes that are free now and not reserved up to `until`; return false if there are not enough.
 *
 * A wait of the job for switches is ignored.
 */
EXPORT bool pick_now(State *s, Slurm *m, int64_t row, double until) {
    const Job *job = &s->jobs[row];
    s->tally->picked = 0;
    if (job->gpus > s->tally->gpus_free) return false;
    int64_t gpus_each = per_node(s, row);
    if (gpus_each == 0) {
        int64_t together = 0;
        for (int64_t node = 0; node < s->n_nodes; node++) {
            m->share[node] = (int32_t)usable_gpus_until(s, m, job, node, until);
            together += m->share[node];
        }
        return together >= job->gpus && pick_shares(s, m, row);
    }
    if (job->nodes_min == 1) return pick_single(s, m, job, gpus_each, until);
    for (int64_t node = 0; node < s->n_nodes; node++)
        m->share[node] = is_open(s, m, job, node, gpus_each, until) ? (int32_t)gpus_each : 0;
    return pick_alike(s, m, gpus_each, job->nodes_min, s->n_nodes);
}
