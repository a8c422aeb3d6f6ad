/* The choice of running jobs to preempt so that a job fits: those with a `key` above that of the job. */

/* Return whether a node could hold a part of a gang if it were empty. */
static bool could_fit(const State *s, int64_t row, int64_t node_row, int64_t gpus) {
    const Job *job = &s->jobs[row];
    const Node *node = &s->nodes[node_row];
    return node->gpus >= gpus && node->is_up && (job->gpu_type == NONE || job->gpu_type == node->gpu_type) &&
           node->cpus >= gpus * job->cpus_per_gpu && node->memory_mib >= gpus * job->memory_mib_per_gpu;
}

static bool is_listed(const Victims *v, int64_t count, int32_t row) {
    for (int64_t place = 0; place < count; place++)
        if (v->rows[place] == row) return true;
    return false;
}

/* Return whether a job is preempted before another: the higher key, then the later job. */
static bool goes_before(const State *s, int32_t one, int32_t other) {
    double first = s->jobs[one].key, second = s->jobs[other].key;
    return first > second || (first == second && one > other);
}

/* Return the job with the highest key above `key` that is not among the first `count` victims; NONE without any.
 *
 * Unless `row` is NONE, only jobs on nodes that could hold a part of the gang in `row` count.
 */
static int32_t next_to_preempt(const State *s, const Victims *v, int64_t count, const int32_t *others, int64_t n_others,
                               double key, int64_t row) {
    int32_t worst = NONE;
    for (int64_t place = 0; place < n_others; place++) {
        int32_t other = others[place];
        if (s->jobs[other].key <= key || is_listed(v, count, other)) continue;
        if (row != NONE && !could_fit(s, row, s->held_nodes[s->jobs[other].pool], 1)) continue;
        if (worst == NONE || goes_before(s, other, worst)) worst = other;
    }
    return worst;
}

/* Return the GPUs that a job holds on a node. */
static int64_t held_on(const State *s, int64_t row, int64_t node_row) {
    const Job *job = &s->jobs[row];
    for (int64_t at = job->pool; at < job->pool + job->span; at++)
        if (s->held_nodes[at] == node_row) return s->held_gpus[at];
    return 0;
}

static double gpus_of(const State *s, const Victims *v, int64_t count) {
    double gpus = 0.0;
    for (int64_t place = 0; place < count; place++) gpus += s->jobs[v->rows[place]].held;
    return gpus;
}

/* List the jobs of a node with the highest keys above `key`, until `gpus` are free there; return 0 if too few are. */
static int64_t victims_on(const State *s, Victims *v, int64_t node_row, double key, int64_t gpus) {
    const Node *node = &s->nodes[node_row];
    const int32_t *here = s->node_jobs + node_row * s->node_jobs_columns;
    int64_t free = node->gpus_free, count = 0;
    while (free < gpus) {
        int32_t worst = next_to_preempt(s, v, count, here, node->running, key, NONE);
        if (worst == NONE) return 0;
        v->rows[count++] = worst;
        free += held_on(s, worst, node_row);
    }
    return count;
}

static int64_t victims_on_one_node(const State *s, Victims *v, int64_t row, double key) {
    int64_t gpus = s->jobs[row].gpus, best = NONE;
    double least_cost = INFINITY;
    for (int64_t node = 0; node < s->n_nodes; node++) {
        if (!could_fit(s, row, node, gpus)) continue;
        int64_t count = victims_on(s, v, node, key, gpus);
        double cost = gpus_of(s, v, count);
        if (count > 0 && cost < least_cost) {
            best = node;
            least_cost = cost;
        }
    }
    return best == NONE ? 0 : victims_on(s, v, best, key, gpus);
}

/* Return the GPUs that others lose if a node is emptied; infinity if it cannot be. */
static double cost_of_emptying(const State *s, int64_t row, int64_t node_row, double key) {
    const Node *node = &s->nodes[node_row];
    if (!could_fit(s, row, node_row, node->gpus)) return INFINITY;
    double cost = 0.0;
    for (int64_t place = 0; place < node->running; place++) {
        const Job *other = &s->jobs[s->node_jobs[node_row * s->node_jobs_columns + place]];
        if (other->key <= key) return INFINITY;
        cost += other->held;
    }
    return cost;
}

/* List the jobs of the nodes from `first` up to `last` that are cheapest to empty; return 0 if too few can be. */
static int64_t victims_on_whole_nodes(const State *s, Victims *v, int64_t row, double key, int64_t first, int64_t last) {
    for (int64_t node = first; node < last; node++) v->costs[node] = cost_of_emptying(s, row, node, key);
    int64_t count = 0, left = s->jobs[row].gpus;
    while (left > 0) {
        int64_t best = NONE;
        for (int64_t node = first; node < last; node++)
            if (v->costs[node] < INFINITY && (best == NONE || v->costs[node] < v->costs[best])) best = node;
        if (best == NONE) return 0;
        v->costs[best] = INFINITY;
        left -= s->nodes[best].gpus;
        for (int64_t place = 0; place < s->nodes[best].running; place++) {
            int32_t other = s->node_jobs[best * s->node_jobs_columns + place];
            if (!is_listed(v, count, other)) v->rows[count++] = other;
        }
    }
    return count;
}

/* List running jobs with a key above `key` to preempt so that a job fits; return how many, 0 if none help.
 *
 * For one node these are the jobs with the highest keys on the node where others lose the fewest GPUs; for several nodes
 * they are all jobs of the nodes where others lose the fewest.
 */
EXPORT int64_t make_room(State *s, Victims *v, int64_t row, double key) {
    const Job *job = &s->jobs[row];
    int64_t free = s->tally->gpus_free;
    for (int64_t place = 0; place < s->tally->running; place++) {
        const Job *other = &s->jobs[s->running[place]];
        if (other->key > key) free += other->held;
    }
    if (free < job->gpus) return 0;
    if (job->gpus <= job->node_gpus) return victims_on_one_node(s, v, row, key);
    return victims_on_whole_nodes(s, v, row, key, 0, s->n_nodes);
}

/* List as `make_room` does, but for a gang over several nodes under the cheapest leaf where it fits. */
EXPORT int64_t make_room_close(State *s, Victims *v, int64_t row, double key) {
    const Job *job = &s->jobs[row];
    if (job->gpus <= job->node_gpus || job->best_nodes > s->rules->leaf_nodes) return make_room(s, v, row, key);
    const Leaf *best = NULL;
    double least_cost = INFINITY;
    for (int64_t leaf_row = 0; leaf_row < s->n_leaves; leaf_row++) {
        const Leaf *leaf = &s->leaves[leaf_row];
        int64_t count = victims_on_whole_nodes(s, v, row, key, leaf->first, leaf->first + leaf->nodes);
        double cost = gpus_of(s, v, count);
        if (count > 0 && cost < least_cost) {
            best = leaf;
            least_cost = cost;
        }
    }
    return best ? victims_on_whole_nodes(s, v, row, key, best->first, best->first + best->nodes) : 0;
}

/* List as `make_room` does, but for a gang that takes GPUs on any nodes: the highest keys go first. */
EXPORT int64_t make_room_anywhere(State *s, Victims *v, int64_t row, double key) {
    int64_t free = 0, count = 0;
    for (int64_t node = 0; node < s->n_nodes; node++) free += usable_gpus(s, row, node);
    while (free < s->jobs[row].gpus) {
        int32_t worst = next_to_preempt(s, v, count, s->running, s->tally->running, key, row);
        if (worst == NONE) return 0;
        v->rows[count++] = worst;
        free += s->jobs[worst].held;
    }
    return count;
}
