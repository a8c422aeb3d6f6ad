/* Node selection of the model of Slurm, as observed on slurmctld 22.05 with topology/tree.
 *
 * A job with a fixed node count that divides its GPUs takes the same number on every node; any other job takes free
 * GPUs in any numbers. It goes to the leaf with the fewest usable nodes that suffice, and there to the first nodes;
 * docs/fidelity.md has the observations.
 */

/* Return what a node is to a job: CLOSED, USABLE or REQUIRED. */
static inline int8_t role_of(const State *s, const Job *job, int64_t node_row) {
    return job->node_class == NONE ? USABLE : s->usable[job->node_class * s->usable_columns + node_row];
}

/* Return whether a node can take a part of a gang now: it has the GPUs, CPUs and memory, or is idle if none is shared. */
static inline bool fits(const State *s, const Job *job, int64_t node_row, int64_t gpus) {
    const Node *node = &s->nodes[node_row];
    if (node->gpus_free < gpus || !node->is_up || role_of(s, job, node_row) == CLOSED) return false;
    if (job->exclusive && node->running > 0) return false;
    return is_within(asked_of(job, gpus), (Portion){node->gpus_free, node->cpus_free, node->memory_free_mib});
}

static inline void add_to_pick(State *s, int64_t node_row, int64_t gpus) {
    s->pick_nodes[s->tally->picked] = (int32_t)node_row;
    s->pick_gpus[s->tally->picked] = (int32_t)gpus;
    s->tally->picked++;
}

/* Return the number of GPUs that a job takes on every node, 0 for one without GPUs; NONE if its parts are open. */
static int64_t part_of(const Job *job) {
    if (job->gpus == 0) return 0;
    if (job->nodes_min != job->nodes_max && job->gpus != 1) return NONE;
    return job->gpus % job->nodes_min == 0 ? job->gpus / job->nodes_min : NONE;
}

/* Return the number of GPUs that a job takes on every node, 0 if it is open. */
EXPORT int64_t per_node(State *s, int64_t row) { return most_of(0, part_of(&s->jobs[row])); }

/* Return whether a reservation of a node keeps a job away: one made by an administrator admits the jobs that name it. */
static inline bool keeps_away(const Reservation *reservation, const Job *job) {
    return reservation->booking == NONE || reservation->booking != job->booking;
}

/* Return whether a node of the partition at hand has the GPUs now, and no reservation for others that begins by `until`. */
static inline bool is_open(const State *s, const Slurm *m, const Job *job, int64_t node, int64_t gpus, double until) {
    if (!can_use(m, node)) return false;
    for (int32_t item = m->first[node]; item != NONE; item = m->reservations[item].next) {
        if (m->reservations[item].start_time > until) break;
        if (keeps_away(&m->reservations[item], job)) return false;
    }
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

/* Add nodes with a share to the pick up to `wanted`, leaf by leaf; return false if they are too few or on too many. */
static bool fill_leaves(State *s, Slurm *m, int64_t gpus_each, int64_t wanted, int64_t most_leaves) {
    int64_t leaves = 0;
    while (s->tally->picked < wanted) {
        int64_t leaf = next_leaf(s, m, wanted - s->tally->picked);
        if (leaf == NONE || ++leaves > most_leaves) return false;
        int64_t begin = s->leaves[leaf].first;
        for (int64_t node = begin; node < begin + s->leaves[leaf].nodes; node++) {
            if (m->share[node] > 0 && s->tally->picked < wanted) add_to_pick(s, node, gpus_each);
            m->share[node] = 0;
        }
    }
    return true;
}

/* Return whether a job takes the first node that has what it asks for: later releases ignore leaves for one node. */
static inline bool takes_first(const Slurm *m, const Job *job) {
    return m->control->first_node && job->nodes_min == 1 && job->nodes_max == 1;
}

/* Pick `wanted` nodes of those with a share, by leaves: the one that just suffices, else the fullest and so on. */
static bool pick_alike(State *s, Slurm *m, int64_t gpus_each, int64_t wanted, int64_t most_leaves) {
    s->tally->picked = 0;
    if (wanted > 1) {
        int64_t usable = 0;
        for (int64_t node = 0; node < s->n_nodes; node++) usable += m->share[node] > 0;
        if (usable < wanted) return false;
    }
    return fill_leaves(s, m, gpus_each, wanted, most_leaves);
}

/* Pick the first node with a share; return false if there is none. */
static bool pick_first(State *s, Slurm *m, int64_t gpus) {
    s->tally->picked = 0;
    for (int64_t node = 0; node < s->n_nodes && s->tally->picked == 0; node++)
        if (m->share[node] > 0) add_to_pick(s, node, gpus);
    return s->tally->picked > 0;
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

/* Distribute the GPUs of a gang over its chosen nodes, at least one to every node that it needs.
 *
 * The nodes are filled in order; in later releases, those with the most usable GPUs first.
 */
static bool hand_out(State *s, Slurm *m, const Job *job) {
    Tally *tally = s->tally;
    int64_t count = tally->picked, left = job->gpus;
    int64_t level = m->control->fills_emptiest ? least_of(s->rules->most_gpus, left) : 0;
    tally->picked = 0;
    for (; level >= 0; level--)
        for (int64_t node = 0; node < s->n_nodes; node++) {
            if (!m->chosen[node] || (m->control->fills_emptiest && m->share[node] != level)) continue;
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

/* Add nodes to the chosen ones of a gang whose node count is open: those with most usable GPUs first.
 *
 * Nodes with equally many are taken under leaves that are already in use, then leaf by leaf.
 */
static bool pick_shares(State *s, Slurm *m, int64_t row) {
    const Job *job = &s->jobs[row];
    Tally *tally = s->tally;
    tally->picked = 0;
    int64_t nodes_max = job->nodes_max == 0 ? s->n_nodes : job->nodes_max;
    int64_t left = job->gpus, level = least_of(s->rules->most_gpus, left);
    for (int64_t node = 0; node < s->n_nodes; node++)
        if (m->chosen[node]) {
            tally->picked++;
            left -= m->share[node];
        }
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

/* Keep the shares of required nodes and of the lightest others that offer `goal` in all; return false if they do not.
 *
 * Required nodes, and those lighter than the heaviest that are needed, are marked in `chosen`: the job takes them all.
 */
static bool admit_lightest(State *s, Slurm *m, const Job *job, int64_t goal) {
    int64_t offered = 0;
    double weight = -INFINITY;
    memset(m->chosen, 0, (size_t)m->n_chosen);
    for (int64_t node = 0; node < s->n_nodes; node++) {
        if (role_of(s, job, node) != REQUIRED) continue;
        if (m->share[node] == 0) return false;
        m->chosen[node] = 1;
        offered += m->share[node];
    }
    while (offered < goal || weight == -INFINITY) {
        double lighter = weight;
        weight = INFINITY;
        for (int64_t node = 0; node < s->n_nodes; node++)
            if (s->nodes[node].weight > lighter) weight = least(weight, s->nodes[node].weight);
        if (weight == INFINITY) return false;
        for (int64_t node = 0; node < s->n_nodes; node++) {
            if (m->chosen[node] || m->share[node] == 0) continue;
            if (s->nodes[node].weight == weight) offered += m->share[node];
        }
        if (offered >= goal) break;
        for (int64_t node = 0; node < s->n_nodes; node++)
            if (m->share[node] > 0 && s->nodes[node].weight == weight) m->chosen[node] = 1;
    }
    for (int64_t node = 0; node < s->n_nodes; node++)
        if (!m->chosen[node] && s->nodes[node].weight > weight) m->share[node] = 0;
    return true;
}

/* Pick `wanted` nodes of those with a share: required and lighter ones, then others under their leaves, then by leaves. */
static bool pick_parts(State *s, Slurm *m, const Job *job, int64_t part, int64_t wanted, int64_t most_leaves) {
    if (takes_first(m, job) && !s->rules->weighs && job->required == 0) return pick_first(s, m, part);
    if (!s->rules->weighs && job->required == 0) return pick_alike(s, m, part, wanted, most_leaves);
    Tally *tally = s->tally;
    tally->picked = 0;
    if (!admit_lightest(s, m, job, wanted)) return false;
    for (int64_t leaf = 0; leaf < s->n_leaves; leaf++) {
        int64_t begin = s->leaves[leaf].first;
        for (int64_t node = begin; node < begin + s->leaves[leaf].nodes; node++)
            if (m->chosen[node]) {
                add_to_pick(s, node, part);
                m->share[node] = 0;
            }
    }
    for (int64_t leaf = 0; leaf < s->n_leaves && tally->picked < wanted; leaf++) {
        int64_t begin = s->leaves[leaf].first;
        bool is_used = false;
        for (int64_t node = begin; node < begin + s->leaves[leaf].nodes; node++) is_used |= m->chosen[node] == 1;
        for (int64_t node = begin; is_used && node < begin + s->leaves[leaf].nodes; node++) {
            if (m->share[node] > 0 && tally->picked < wanted) add_to_pick(s, node, part);
            m->share[node] = 0;
        }
    }
    if (!fill_leaves(s, m, part, wanted, s->n_leaves)) return false;
    sort_pick(s);
    return leaves_picked(s) <= most_leaves;
}

/* Pick nodes for a gang whose node count is open, among those with a share. */
static bool pick_open(State *s, Slurm *m, int64_t row) {
    const Job *job = &s->jobs[row];
    if (s->rules->weighs || job->required > 0) {
        if (!admit_lightest(s, m, job, job->gpus)) return false;
    } else {
        memset(m->chosen, 0, (size_t)m->n_chosen);
    }
    return pick_shares(s, m, row);
}

/* Return whether a job would fit if all nodes were idle that are up and not reserved for others by `until`.
 *
 * They are nodes of the partition at hand.
 */
static bool can_run(State *s, Slurm *m, int64_t row, double until) {
    const Job *job = &s->jobs[row];
    int64_t part = part_of(job), nodes = 0, gpus = 0;
    for (int64_t row_of_node = 0; row_of_node < s->n_nodes; row_of_node++) {
        const Node *node = &s->nodes[row_of_node];
        int8_t role = role_of(s, job, row_of_node);
        bool is_open_to_job = can_use(m, row_of_node) && node->is_up && role != CLOSED;
        for (int32_t item = m->first[row_of_node]; is_open_to_job && item != NONE; item = m->reservations[item].next)
            is_open_to_job = m->reservations[item].start_time > until || !keeps_away(&m->reservations[item], job);
        if (is_open_to_job) {
            Portion whole = {node->gpus, node->cpus, node->memory_mib};
            nodes += is_within(asked_of(job, most_of(part, 0)), whole);
            gpus += node->gpus;
        } else if (role == REQUIRED) {
            return false;
        }
    }
    return part == NONE ? gpus >= job->gpus : nodes >= job->nodes_min;
}

/* Pick the first node under the leaf with the fewest nodes that can hold the job, or the first of all. */
static bool pick_single(State *s, Slurm *m, const Job *job, int64_t gpus, double until) {
    int64_t best = NONE, fewest = s->n_nodes + 1;
    for (int64_t leaf = 0; leaf < s->n_leaves && !(best != NONE && takes_first(m, job)); leaf++) {
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
 * They are nodes of the partition at hand. A wait of the job for switches is ignored.
 */
EXPORT bool pick_now(State *s, Slurm *m, int64_t row, double until) {
    const Job *job = &s->jobs[row];
    s->tally->picked = 0;
    if (job->gpus > s->tally->gpus_free) return false;
    int64_t part = part_of(job);
    if (part == NONE) {
        int64_t together = 0;
        for (int64_t node = 0; node < s->n_nodes; node++) {
            m->share[node] = (int32_t)usable_gpus_until(s, m, job, node, until);
            together += m->share[node];
        }
        return together >= job->gpus && pick_open(s, m, row);
    }
    bool is_plain = !s->rules->weighs && job->required == 0;
    if (job->nodes_min == 1 && is_plain) return pick_single(s, m, job, part, until);
    for (int64_t node = 0; node < s->n_nodes; node++) m->share[node] = is_open(s, m, job, node, part, until);
    return pick_parts(s, m, job, part, job->nodes_min, s->n_nodes);
}
