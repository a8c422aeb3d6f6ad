/* Delay scheduling: gangs are offered free GPUs, and decline a placement spread too far until their timer ends.
 *
 * The tier of a gang is relative to the best placement it could ever have: the fewest nodes under as few leaves as
 * possible, then one leaf, then any. Where nodes or leaves differ in size, even the idle cluster can offer no better.
 */

/* What a shape lacked earlier in a pass. */
enum { NOT_CLOSE = 1, NOT_LEAF = 2, NOT_ANY = 4 };
/* Two instants this close are one. */
#define SAME_S 1e-6

/* Return the wait up to `bound_s` that is worth most, as `tuning.best_wait_s` does for the planner. */
static double best_wait_s(const GangPatience *p, const double *rate_per_s, double worth_s, double bound_s) {
    double best_s = 0.0, worth = 0.0, best_worth = 0.0;
    double waiting = 1.0; /* the probability to be still waiting */
    for (int64_t stretch = 0; stretch < p->rate_per_s_columns; stretch++) {
        double begin_s = p->edges_s[stretch], end_s = least(p->edges_s[stretch + 1], bound_s);
        if (end_s <= begin_s) break;
        double rate = rate_per_s[stretch];
        double ends = 1.0 - exp(-rate * (end_s - begin_s));
        /* A place ends the wait at this rate, so a stretch pays throughout or not at all. */
        worth += waiting * ends * (worth_s - 1.0 / rate);
        waiting *= 1.0 - ends;
        if (worth > best_worth) {
            best_s = end_s;
            best_worth = worth;
        }
    }
    return best_s;
}

/* Return how long a gang waits for a closer place up to `bound_s`, as `tuning.timer_s` does for the planner. */
EXPORT double tuned_timer_s(GangPatience *p, int64_t gang_class, int64_t tier, double run_s, double here, double there,
                            double bound_s) {
    if (here < p->least_inflation[0]) return 0.0;
    double saved_s = run_s * most(0.0, here - there);
    const double *rate_per_s = p->rate_per_s + (2 * gang_class + tier) * p->rate_per_s_columns;
    return best_wait_s(p, rate_per_s, saved_s, least(saved_s, bound_s));
}

/* Count the leaves of nodes; the nodes of a leaf are adjacent. */
static int64_t leaves_of(const State *s, const int32_t *nodes, int64_t count) {
    int64_t leaves = 0;
    int32_t before = NONE;
    for (int64_t place = 0; place < count; place++) {
        int32_t leaf = s->nodes[nodes[place]].leaf;
        leaves += leaf != before;
        before = leaf;
    }
    return leaves;
}

static int64_t relative_tier(const State *s, int64_t row, const int32_t *nodes, int64_t count) {
    const Job *job = &s->jobs[row];
    if (leaves_of(s, nodes, count) > parts_of(job->best_nodes, s->rules->leaf_nodes)) return SPINE_TIER;
    return count <= job->best_nodes ? NODE_TIER : LEAF_TIER;
}

/* Return the tier of the picked nodes, relative to the best tier that the gang could have. */
EXPORT int64_t tier_of_pick(State *s, int64_t row) { return relative_tier(s, row, s->pick_nodes, s->tally->picked); }

/* Return the tier of the nodes of a running gang, relative to the best tier that it could have. */
EXPORT int64_t tier_held(State *s, int64_t row) { return relative_tier(s, row, nodes_of(s, row), s->jobs[row].span); }

/* Return the inflation of a gang on the picked nodes, beside the gangs that use its links now.
 *
 * Unless `crosses`, the gang counts as alone on its links: only a placement on other leaves is in question.
 */
EXPORT double picked_inflation(State *s, int64_t row, bool crosses) {
    if (s->rules->is_ideal) return 1.0;
    const Job *job = &s->jobs[row];
    int64_t count = s->tally->picked;
    double speed = INFINITY;
    for (int64_t place = 0; place < count; place++)
        speed = least(speed, s->type_speed[job->profile * s->type_speed_columns + s->nodes[s->pick_nodes[place]].gpu_type]);
    double here = least(s->rules->nic_gbps, s->rules->node_gbps), best = best_gbps(s, job->best_nodes);
    if (crosses) here = slowest_gbps(s, s->pick_nodes, count, 0.0, true, 1);
    return inflation(&s->profiles[job->profile], job->gpus, most_of(count, 2), here / speed, most_of(job->best_nodes, 2),
                     best / speed);
}

/* Return how long a gang declines the picked nodes at a tier; 0: it accepts. */
EXPORT double timer_s(State *s, GangPatience *p, int64_t row, int64_t tier) {
    const Job *job = &s->jobs[row];
    int64_t best_tier = p->best_tier[job->shape];
    if (tier <= best_tier) return 0.0;
    double cost = picked_inflation(s, row, tier == SPINE_TIER);
    double run_s = job->believed_s * job->left_s / job->work_s;
    double longest_s = 0.0;
    for (int64_t better = best_tier; better < tier; better++) {
        double wait_s = p->fixed_s[better];
        if (isnan(wait_s)) {
            double there = better == NODE_TIER ? 1.0 : picked_inflation(s, row, false);
            wait_s = tuned_timer_s(p, p->gang_class[row], better, run_s, cost, there, p->longest_s[0] - p->spent_s[row]);
        } else if (cost < p->least_inflation[0]) {
            wait_s = 0.0;
        }
        longest_s = most(longest_s, wait_s);
    }
    return longest_s;
}

/* Pick the closest free placement of a job; return false if there is none. */
static bool pick_closest(State *s, GangPatience *p, int64_t row) {
    int32_t gpus = s->jobs[row].gpus;
    int8_t *missing = &p->missing[s->jobs[row].shape];
    if (*missing & NOT_ANY || gpus > s->tally->gpus_free) return false;
    bool crosses = false;
    if (!(*missing & NOT_CLOSE)) {
        crosses = pick(s, row, gpus);
        if (crosses && tier_of_pick(s, row) == NODE_TIER) return true;
        if (!crosses) *missing |= NOT_CLOSE;
    }
    if (!(*missing & NOT_LEAF)) {
        if (pick_leaf(s, row, gpus)) return true;
        *missing |= NOT_LEAF;
    }
    if (crosses) return pick(s, row, gpus);
    if (pick_anywhere(s, row, gpus)) return true;
    *missing |= NOT_ANY;
    return false;
}

/* Stop the clocks of gangs whose last offered placement went to a later job. */
static void forget_places(State *s, GangPatience *p, const Integers *rows) {
    for (int64_t place = 0; place < rows->n_items; place++) {
        int32_t row = rows->items[place];
        if (!p->declining[row] || pick_closest(s, p, row)) continue;
        p->declining[row] = 0;
        s->jobs[row].watch_time = INFINITY;
        set_timer(s, row);
    }
}

/* Book the time since the last pass for the gangs that declined a place in it. */
static void book_declined(GangPatience *p, const Integers *rows, double now) {
    double passed_s = now - p->pass_time[0];
    p->pass_time[0] = now;
    for (int64_t place = 0; place < rows->n_items; place++) {
        int32_t row = rows->items[place];
        if (!p->declining[row]) continue;
        p->declined_s[row] += passed_s;
        p->declining[row] = 0;
    }
}

/* Offer the free GPUs to pending jobs in the order of `rows`; a job that declines blocks no other. */
EXPORT void offer(State *s, GangPatience *p, const Integers *rows, double now) {
    memset(p->missing, 0, (size_t)p->n_missing);
    book_declined(p, rows, now);
    bool declined = false, taken = false;
    for (int64_t place = 0; place < rows->n_items && s->tally->gpus_free > 0; place++) {
        int32_t row = rows->items[place];
        Job *job = &s->jobs[row];
        if (job->phase != PENDING || !pick_closest(s, p, row)) continue;
        int64_t tier = tier_of_pick(s, row);
        double left_s = timer_s(s, p, row, tier) - p->declined_s[row];
        if (left_s <= SAME_S) {
            p->reached[row] = (int8_t)tier;
            job->watch_time = INFINITY;
            start(s, row, now);
            taken = declined;
        } else {
            declined = true;
            p->declining[row] = 1;
            job->watch_time = now + left_s;
            set_timer(s, row);
        }
    }
    if (taken) forget_places(s, p, rows);
}

/* Compute the best tier of every shape of jobs, while the cluster is idle. */
EXPORT void best_tiers(State *s, GangPatience *p, const Integers *rows) {
    memset(p->missing, 0, (size_t)p->n_missing);
    for (int64_t place = 0; place < rows->n_items; place++) {
        int32_t row = rows->items[place];
        if (pick_closest(s, p, row)) p->best_tier[s->jobs[row].shape] = (int8_t)tier_of_pick(s, row);
    }
}

/* Compute the inflation of gangs that span one node more than needed, on two leaves.
 *
 * The uplink is that of the leaf with the smaller half of the nodes, used by no other gang.
 */
EXPORT void sensitivities(State *s, const Integers *rows, Reals *inflations) {
    const Rules *rules = s->rules;
    for (int64_t place = 0; place < rows->n_items; place++) {
        const Job *job = &s->jobs[rows->items[place]];
        inflations->items[place] = 1.0;
        if (rules->is_ideal || job->gpus == 1) continue;
        int64_t fewest = job->best_nodes;
        double best = best_gbps(s, fewest), speed = job->reference_speed;
        double carried = rules->leaf_nodes * rules->nic_gbps / rules->oversubscription / (double)((fewest + 1) / 2);
        double here = least(rules->nic_gbps, carried);
        inflations->items[place] = inflation(&s->profiles[job->profile], job->gpus, fewest + 1, here / speed,
                                             most_of(fewest, 2), best / speed);
    }
}
