/* Gang placement of policies that place jobs themselves.
 *
 * A pick is stored in the first `picked` entries of `pick_nodes` and `pick_gpus`, the nodes of a leaf adjacent. No GPU is
 * allocated until the job starts.
 */

/* Return the number of GPUs of a node that a part of a gang could use. */
EXPORT int64_t usable_gpus(State *s, int64_t row, int64_t node_row) {
    const Job *job = &s->jobs[row];
    const Node *node = &s->nodes[node_row];
    if (!node->is_up || (job->gpu_type != NONE && job->gpu_type != node->gpu_type)) return 0;
    int64_t usable = node->gpus_free;
    if (job->cpus_per_gpu > 0) usable = least_of(usable, node->cpus_free / job->cpus_per_gpu);
    if (job->memory_mib_per_gpu > 0) usable = least_of(usable, node->memory_free_mib / job->memory_mib_per_gpu);
    return usable;
}

static int64_t usable_under(State *s, int64_t row, const Leaf *leaf) {
    int64_t usable = 0;
    if (leaf->gpus_free == 0) return 0;
    for (int64_t node = leaf->first; node < leaf->first + leaf->nodes; node++) usable += usable_gpus(s, row, node);
    return usable;
}

/* Return the GPUs of a node if it is fully idle and usable by a job, else 0. */
static int64_t idle_gpus(const State *s, int64_t row, int64_t node_row) {
    const Node *node = &s->nodes[node_row];
    return node->gpus_free == node->gpus && fits(s, &s->jobs[row], node_row, node->gpus) ? node->gpus : 0;
}

static int64_t idle_under(State *s, int64_t row, const Leaf *leaf) {
    int64_t idle = 0;
    for (int64_t node = leaf->first; node < leaf->first + leaf->nodes; node++) idle += idle_gpus(s, row, node);
    return idle;
}

static bool is_picked(const State *s, int64_t node_row) {
    for (int64_t place = 0; place < s->tally->picked; place++)
        if (s->pick_nodes[place] == node_row) return true;
    return false;
}

/* Insert a node into the pick beside the other nodes of its leaf. */
static void insert_in_pick(State *s, int64_t node_row, int64_t gpus) {
    add_to_pick(s, node_row, gpus);
    int64_t place = s->tally->picked - 1, last_of_leaf = NONE;
    for (int64_t earlier = 0; earlier < place; earlier++)
        if (s->nodes[s->pick_nodes[earlier]].leaf == s->nodes[node_row].leaf) last_of_leaf = earlier;
    if (last_of_leaf == NONE) return;
    for (; place > last_of_leaf + 1; place--) {
        s->pick_nodes[place] = s->pick_nodes[place - 1];
        s->pick_gpus[place] = s->pick_gpus[place - 1];
    }
    s->pick_nodes[place] = (int32_t)node_row;
    s->pick_gpus[place] = (int32_t)gpus;
}

/* Add parts of a leaf's nodes to the pick, largest first and the smallest last; return the GPUs still missing. */
static int64_t pick_fullest_parts(State *s, int64_t row, const Leaf *leaf, int64_t gpus) {
    int64_t left = gpus;
    while (left > 0) {
        int64_t best = NONE, best_usable = 0;
        for (int64_t node = leaf->first; node < leaf->first + leaf->nodes; node++) {
            int64_t usable = usable_gpus(s, row, node);
            if (usable == 0 || is_picked(s, node)) continue;
            bool both_suffice = usable >= left && best_usable >= left;
            if (both_suffice ? usable < best_usable : usable > best_usable) {
                best = node;
                best_usable = usable;
            }
        }
        if (best == NONE) break;
        int64_t took = least_of(best_usable, left);
        add_to_pick(s, best, took);
        left -= took;
    }
    return left;
}

/* Add idle nodes of a leaf to the pick, up to `gpus`; return the GPUs added. */
static int64_t pick_idle_nodes(State *s, int64_t row, const Leaf *leaf, int64_t gpus) {
    int64_t added = 0;
    for (int64_t node = leaf->first; node < leaf->first + leaf->nodes && added < gpus; node++) {
        int64_t idle = idle_gpus(s, row, node);
        if (idle == 0) continue;
        int64_t took = least_of(idle, gpus - added);
        add_to_pick(s, node, took);
        added += took;
    }
    return added;
}

/* Add nodes to the pick leaf by leaf, the one with most usable GPUs first; return the GPUs still missing.
 *
 * Either only fully idle nodes are used, or the free GPUs of any node.
 */
static int64_t pick_leaf_by_leaf(State *s, int64_t row, int64_t gpus, bool is_idle) {
    int64_t left = gpus, before = s->n_nodes * s->rules->most_gpus + 1, last = NONE;
    while (left > 0) {
        int64_t best = NONE, best_usable = 0;
        for (int64_t leaf = 0; leaf < s->n_leaves; leaf++) {
            int64_t usable = is_idle ? idle_under(s, row, &s->leaves[leaf]) : usable_under(s, row, &s->leaves[leaf]);
            /* Those taken already stand before in the order of (usable GPUs, leaf). */
            bool taken = usable > before || (usable == before && leaf <= last);
            if (usable > best_usable && !taken) {
                best = leaf;
                best_usable = usable;
            }
        }
        if (best == NONE) break;
        if (is_idle) left -= pick_idle_nodes(s, row, &s->leaves[best], left);
        else left = pick_fullest_parts(s, row, &s->leaves[best], left);
        before = best_usable;
        last = best;
    }
    return left;
}

static bool pick_one(State *s, int64_t row, int64_t gpus) {
    int64_t best = NONE, least_free = s->rules->most_gpus + 1;
    for (int64_t node = 0; node < s->n_nodes; node++) {
        int64_t free = s->nodes[node].gpus_free;
        if (gpus > free || free >= least_free || !fits(s, &s->jobs[row], node, gpus)) continue;
        best = node;
        least_free = free;
        if (free == gpus) break;
    }
    if (best == NONE) return false;
    add_to_pick(s, best, gpus);
    return true;
}

/* Add the fullest node that holds the remainder of a gang, if possible under the leaf of the other nodes. */
static bool add_rest(State *s, int64_t row, int64_t rest, int64_t leaf) {
    int64_t best = NONE, least_free = s->rules->most_gpus + 1;
    bool best_is_near = false;
    for (int64_t node = 0; node < s->n_nodes; node++) {
        int64_t free = s->nodes[node].gpus_free;
        if (free < rest || !fits(s, &s->jobs[row], node, rest) || is_picked(s, node)) continue;
        bool is_near = s->nodes[node].leaf == leaf;
        if ((is_near && !best_is_near) || (is_near == best_is_near && free < least_free)) {
            best = node;
            least_free = free;
            best_is_near = is_near;
        }
    }
    if (best == NONE) return false;
    insert_in_pick(s, best, rest);
    return true;
}

/* Pick idle nodes: under the fullest leaf that has enough of them, else beginning with the emptiest leaves. */
static bool pick_whole(State *s, int64_t row, int64_t gpus) {
    int64_t rest = gpus % s->jobs[row].node_gpus, left = gpus - rest;
    int64_t best = NONE, least_idle = 0, total = 0;
    for (int64_t leaf = 0; leaf < s->n_leaves; leaf++) {
        if (s->leaves[leaf].gpus_free == 0) continue;
        int64_t idle = idle_under(s, row, &s->leaves[leaf]);
        total += idle;
        if (idle >= gpus && (best == NONE || idle < least_idle)) {
            best = leaf;
            least_idle = idle;
        }
    }
    if (total < left) return false;
    if (best != NONE) left -= pick_idle_nodes(s, row, &s->leaves[best], left);
    else left = pick_leaf_by_leaf(s, row, left, true);
    if (left <= 0 && rest > 0) return add_rest(s, row, rest, best);
    return left <= 0;
}

/* Pick the fewest nodes for a gang, under as few leaves as possible; return false if they are not free.
 *
 * A gang that fits one node takes the fullest that holds it, so that large gaps stay whole; a larger gang takes idle
 * nodes, and for the rest the fullest node that holds it. Ties go to the first node.
 */
EXPORT bool pick(State *s, int64_t row, int64_t gpus) {
    s->tally->picked = 0;
    if (gpus > s->tally->gpus_free) return false;
    return gpus <= s->jobs[row].node_gpus ? pick_one(s, row, gpus) : pick_whole(s, row, gpus);
}

/* Pick free GPUs on as few nodes as possible under the leaf with the fewest that suffice. */
EXPORT bool pick_leaf(State *s, int64_t row, int64_t gpus) {
    s->tally->picked = 0;
    const Leaf *best = NULL;
    for (int64_t leaf_row = 0; leaf_row < s->n_leaves; leaf_row++) {
        const Leaf *leaf = &s->leaves[leaf_row];
        if (leaf->gpus_free < gpus || (best && leaf->gpus_free >= best->gpus_free)) continue;
        if (usable_under(s, row, leaf) >= gpus) best = leaf;
    }
    return best && pick_fullest_parts(s, row, best, gpus) == 0;
}

/* Pick free GPUs under any leaves, beginning with the leaf that has the most. */
EXPORT bool pick_anywhere(State *s, int64_t row, int64_t gpus) {
    s->tally->picked = 0;
    return gpus <= s->tally->gpus_free && pick_leaf_by_leaf(s, row, gpus, false) == 0;
}
