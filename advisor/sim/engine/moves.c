/* Lifts and exchanges between the passes of slurmctld: the choices of planning/lifts.py, objective.py and exchange.py,
 * on the pending jobs of one pool at a time.
 */

/* Collect the pending jobs of a pool whose run times are known, in the order of the line; return their number. */
static int64_t collect(const State *s, const Slurm *m, Moves *moves, int64_t pool) {
    int64_t count = 0;
    for (int64_t place = 0; place < m->control->lined; place++) {
        int32_t row = m->line[place];
        if (row >= s->n_jobs || s->jobs[row].gpus <= 0 || moves->pool[row] != pool) continue;
        if (!isfinite(moves->run_s[row])) continue;
        moves->waiting[count].user = s->jobs[row].user;
        moves->waiting[count++].row = row;
    }
    return count;
}

/* Return how much later than without advice a job can start before it goes first, from its wait without it. */
static double lateness_bound(const MoveSettings *settings, double plain_wait_s) {
    return most(settings->lateness_s, settings->lateness_ratio * plain_wait_s);
}

/* Return whether a job is later than the bound on lateness allows. */
static bool is_overdue(const Moves *moves, int32_t row, double now) {
    double plain = moves->plain_start_time[row], begin = moves->submit_time[row];
    if (!isfinite(plain)) return false;
    return now - plain > lateness_bound(moves->settings, plain - begin);
}

/* Give a job a nice and its priority by it. */
static void set_nice(State *s, Slurm *m, int32_t row, double nice, double now) {
    s->jobs[row].nice = (int32_t)nice;
    prioritise(s, m, row, now);
    s->tally->changes++;
}

static void take_back(State *s, Slurm *m, Moves *moves, int32_t row, double now) {
    set_nice(s, m, row, moves->nice[row], now);
    moves->until[row] = 0.0;
}

/* Sort all places by `sorted_by`; equal ones are in the order of the line. */
static void sort_places(const Moves *moves, int32_t *places, int64_t count) {
    for (int64_t at = 0; at < count; at++) places[at] = (int32_t)at;
    sort_by(moves->sorted_by, places, moves->spare, count);
}

/* Set the key of each job: its GPU-time, over its weight where users count; 0 for one that is overdue. */
static void weigh_jobs(const State *s, const Slurm *m, Moves *moves, int64_t count, double capacity, double now) {
    const MoveSettings *settings = moves->settings;
    double highest = 0.0;
    for (int64_t at = 0; at < count; at++) {
        MoveCase *each = &moves->waiting[at];
        each->standing = each->priority + (double)(s->jobs[each->row].nice - moves->nice[each->row]);
        each->key = moves->run_s[each->row] * moves->taken[each->row];
        moves->sorted_by[at] = -each->standing;
        highest = most(highest, each->standing);
    }
    if (!settings->is_weighed) return;
    sort_places(moves, moves->order, count);
    double ahead = 0.0, by_points = settings->decades / settings->scale;
    for (int64_t at = 0; at < count; at++) {
        MoveCase *each = &moves->waiting[moves->order[at]];
        double gpu_s = each->key, waited = now - m->eligible_time[each->row];
        ahead += gpu_s;
        double turnaround = waited + (ahead - gpu_s) / capacity + moves->run_s[each->row];
        double turn = (settings->patience_s + waited) / (settings->patience_s + turnaround);
        double weight = pow(10.0, most((each->standing - highest) * by_points, -MOST_DECADES));
        weight = weight * moves->waits[each->user].credit * turn;
        each->key = is_overdue(moves, each->row, now) ? 0.0 : gpu_s / weight;
    }
}

/* Let a place sink in a heap of places, of which the first is the one that comes first by its key. */
static void sink(const double *keys, int32_t *heap, int64_t length, int64_t at) {
    int32_t place = heap[at];
    for (int64_t below; (below = 2 * at + 1) < length; at = below) {
        if (below + 1 < length && comes_first(keys, heap[below + 1], heap[below])) below++;
        if (!comes_first(keys, heap[below], place)) break;
        heap[at] = heap[below];
    }
    heap[at] = place;
}

/* Make a heap of places. */
static void make_heap(const double *keys, int32_t *heap, int64_t length) {
    for (int64_t at = length / 2 - 1; at >= 0; at--) sink(keys, heap, length, at);
}

/* Take the first place out of a heap. */
static int32_t take_first(const double *keys, int32_t *heap, int64_t *length) {
    int32_t first = heap[0];
    heap[0] = heap[--*length];
    sink(keys, heap, *length, 0);
    return first;
}

/* Put the places at the head of the line, those of the lowest keys, into `order`; return their number.
 *
 * One user has more than a share only of what is left; jobs that go before all others are kept there.
 */
static int64_t head_of(Moves *moves, int64_t count) {
    const MoveSettings *settings = moves->settings;
    int64_t going_first = 0, kept = 0, beyond = 0, left = count;
    for (int64_t at = 0; at < count; at++) {
        moves->sorted_by[at] = moves->waiting[at].key;
        moves->order[at] = moves->spare[at] = (int32_t)at;
        moves->of_user[moves->waiting[at].user] = 0.0;
        going_first += moves->waiting[at].key <= 0.0;
    }
    int64_t places = most_of(settings->places, going_first);
    if (places >= count) return count;
    int32_t *heap = moves->spare;
    make_heap(moves->sorted_by, heap, count);
    double share = most(1.0, (double)settings->places * settings->user_ratio);
    while (kept < places && left > 0) {
        int32_t place = take_first(moves->sorted_by, heap, &left);
        double *number = &moves->of_user[moves->waiting[place].user];
        /* Those beyond a share stay behind the heap, the first of them last. */
        if (*number >= share && moves->waiting[place].key > 0.0) heap[count - ++beyond] = place;
        else moves->order[kept++] = place;
        *number += 1.0;
    }
    for (int64_t at = 1; kept < places; at++) moves->order[kept++] = heap[count - at];
    return places;
}

/* Return the highest priority of the jobs that no lift gave it; of all where there is no such job. */
static double highest_of_others(const Moves *moves, int64_t count, bool *has_others) {
    double highest = -INFINITY, of_all = -INFINITY;
    *has_others = false;
    for (int64_t at = 0; at < count; at++) {
        const MoveCase *each = &moves->waiting[at];
        of_all = most(of_all, each->priority);
        if (each->is_lifted) continue;
        highest = most(highest, each->priority);
        *has_others = true;
    }
    return *has_others ? highest : of_all;
}

/* Set for each job the highest key of those that it does not precede by its priority. */
static void set_passed(Moves *moves, int64_t count) {
    int32_t *order = moves->by_priority;
    for (int64_t at = 0; at < count; at++) moves->sorted_by[at] = -moves->waiting[at].priority;
    sort_places(moves, order, count);
    double highest = -INFINITY;
    for (int64_t at = 0, next = 0; at < count; at = next) {
        double priority = moves->waiting[order[at]].priority;
        for (; next < count && moves->waiting[order[next]].priority == priority; next++)
            highest = most(highest, moves->waiting[order[next]].key);
        for (int64_t same = at; same < next; same++) moves->waiting[order[same]].passed = highest;
    }
}

/* Return the priority of a lifted job with a key, above the highest of those not lifted. */
static double lifted_priority(const MoveSettings *settings, double key, double highest) {
    double points = least(most(settings->scale, LEAST_POINTS), MOST_POINTS);
    double power = least(most(log2(most(key, 2.2250738585072014e-308)), LOWEST_POWER), HIGHEST_POWER);
    double foot = pow(2.0, ceil(log2(most(2.0, highest + points))));
    return foot + nearbyint((HIGHEST_POWER - power) * points);
}

/* Forget lifts of a lane that the window has left, and add up those of a pool for each user. */
static void add_spent(const State *s, Moves *moves, int64_t pool, double now) {
    MoveSettings *settings = moves->settings;
    while (settings->spent > 0 && moves->lane[settings->first_spent].time <= now - settings->window_s) {
        settings->first_spent = (settings->first_spent + 1) % moves->n_lane;
        settings->spent--;
    }
    for (int64_t at = 0; at < settings->spent; at++) {
        const LaneLift *lift = &moves->lane[(settings->first_spent + at) % moves->n_lane];
        if (moves->pool[lift->row] == pool) moves->of_user[s->jobs[lift->row].user] += lift->gpu_s;
    }
}

/* Note a lift of a lane; there is room for two of each job in a window, beyond which the first is forgotten. */
static void note_spent(Moves *moves, int32_t row, double gpu_s, double now) {
    MoveSettings *settings = moves->settings;
    if (settings->spent == moves->n_lane) {
        settings->first_spent = (settings->first_spent + 1) % moves->n_lane;
        settings->spent--;
    }
    LaneLift *lift = &moves->lane[(settings->first_spent + settings->spent++) % moves->n_lane];
    *lift = (LaneLift){.time = now, .gpu_s = gpu_s, .row = row};
}

/* Return what a job takes if it is lifted: in a lane what is expected, else the most that it can. */
static double stake_of(const State *s, const Moves *moves, int32_t row) {
    if (moves->settings->is_lane) return moves->run_s[row] * moves->taken[row];
    double limit_s = s->jobs[row].limit_s;
    return moves->taken[row] * (isfinite(limit_s) ? limit_s : moves->run_s[row]);
}

/* Choose of the places in `order` those that can be lifted beside what is; leave there those it looked at, lowest key first.
 *
 * Return their number: in a lane many are asked for, and few fit.
 */
static int64_t choose_within(const State *s, Moves *moves, int64_t count, int64_t asked, int64_t pool, double capacity, double now) {
    const MoveSettings *settings = moves->settings;
    double bound = capacity * settings->work_s, used = 0.0, smallest = INFINITY;
    bool is_lane = settings->is_lane, is_shared = false;
    memset(moves->of_user, 0, (size_t)moves->n_of_user * sizeof *moves->of_user);
    for (int64_t at = 0; at < count; at++) {
        const MoveCase *each = &moves->waiting[at];
        moves->sorted_by[at] = each->key;
        is_shared |= each->user != moves->waiting[0].user;
        if (each->is_lifted && !is_lane) moves->of_user[each->user] += each->gpu_s;
    }
    if (is_lane) add_spent(s, moves, pool, now);
    for (int64_t user = 0; user < moves->n_of_user; user++) used += moves->of_user[user];
    double most_of_user = bound * (is_shared ? settings->user_ratio : 1.0);
    for (int64_t at = 0; at < asked; at++) {
        moves->spare[at] = moves->order[at];
        smallest = least(smallest, moves->waiting[moves->order[at]].gpu_s);
    }
    make_heap(moves->sorted_by, moves->spare, asked);
    for (int64_t at = 0, left = asked; at < asked; at++) {
        moves->order[at] = take_first(moves->sorted_by, moves->spare, &left);
        MoveCase *each = &moves->waiting[moves->order[at]];
        bool goes_first = each->key <= 0.0;
        if (is_lane && !goes_first && used + smallest > bound) return at;
        double *of_user = &moves->of_user[each->user];
        bool fits_user = *of_user + each->gpu_s <= most_of_user || (!is_lane && *of_user == 0.0);
        bool fits = fits_user && (used + each->gpu_s <= bound || (!is_lane && used == 0.0));
        each->is_chosen = fits || goes_first;
        if (!each->is_chosen || each->is_lifted) continue;
        *of_user += each->gpu_s;
        used += each->gpu_s;
    }
    return asked;
}

/* Put into `order` the places of the jobs to lift, with the priority that each gets; return their number. */
static int64_t choose_lifts(const State *s, Moves *moves, int64_t count, double now) {
    int64_t head = head_of(moves, count), asked = 0;
    for (int64_t at = 0; at < head; at++) {
        const MoveCase *each = &moves->waiting[moves->order[at]];
        bool is_old_enough = now - s->jobs[each->row].submit_time >= moves->settings->min_age_s;
        if (is_old_enough && (!each->is_lifted || each->key <= 0.0)) moves->order[asked++] = moves->order[at];
    }
    if (asked == 0) return 0;
    bool has_others;
    double highest = highest_of_others(moves, count, &has_others);
    int64_t candidates = asked;
    set_passed(moves, count);
    asked = 0;
    for (int64_t at = 0; at < candidates; at++) {
        MoveCase *each = &moves->waiting[moves->order[at]];
        /* Those that go before all others are lifted before another job can pass them, if one can that is not lifted. */
        if (each->passed <= each->key && !(each->key <= 0.0 && has_others)) continue;
        each->after = lifted_priority(moves->settings, each->key, highest);
        if (each->after > each->priority) moves->order[asked++] = moves->order[at];
    }
    return asked;
}

/* Put back and lift jobs of one pool; return whether any was changed. */
static bool lift_pool(State *s, Slurm *m, Moves *moves, int64_t pool, double now) {
    int64_t count = collect(s, m, moves, pool), changes = s->tally->changes;
    if (count < 2) return false;
    double capacity = moves->capacity[pool];
    for (int64_t at = 0; at < count; at++) {
        MoveCase *each = &moves->waiting[at];
        double until = moves->until[each->row];
        if (until > 0.0 && until <= now) take_back(s, m, moves, each->row, now);
        each->priority = s->jobs[each->row].priority;
        each->gpu_s = stake_of(s, moves, each->row);
        each->is_lifted = moves->until[each->row] > 0.0;
        each->is_chosen = 0;
    }
    weigh_jobs(s, m, moves, count, capacity, now);
    int64_t asked = choose_lifts(s, moves, count, now);
    if (asked > 0) asked = choose_within(s, moves, count, asked, pool, capacity, now);
    for (int64_t at = 0; at < asked; at++) {
        const MoveCase *each = &moves->waiting[moves->order[at]];
        if (!each->is_chosen) continue;
        set_nice(s, m, each->row, s->jobs[each->row].nice + each->priority - each->after, now);
        moves->until[each->row] = now + moves->settings->lease_s;
        if (moves->settings->is_lane) note_spent(moves, each->row, each->gpu_s, now);
    }
    return s->tally->changes > changes;
}

/* Put back the pairs that are due: a lease is over, or a job that has given its place is overdue. */
static void take_back_pairs(State *s, Slurm *m, Moves *moves, int64_t count, double now) {
    for (int64_t at = 0; at < count; at++) {
        MoveCase *each = &moves->waiting[at];
        double until = moves->until[each->row];
        bool is_lifted = s->jobs[each->row].nice < moves->nice[each->row];
        each->is_chosen = until > 0.0 && (until <= now || (!is_lifted && is_overdue(moves, each->row, now)));
    }
    for (int64_t at = 0; at < count; at++) {
        if (!moves->waiting[at].is_chosen) continue;
        int32_t row = moves->waiting[at].row, partner = moves->partner[row];
        /* Its partner can have been put back with it before. */
        if (moves->until[row] > 0.0) take_back(s, m, moves, row, now);
        if (partner == NONE || s->jobs[partner].phase != PENDING || moves->until[partner] <= 0.0) continue;
        take_back(s, m, moves, partner, now);
    }
}

/* Return the place of the smallest job behind one of its group that can rise to its place; NONE if there is none. */
static int64_t smaller_behind(const Moves *moves, int64_t count, int64_t place) {
    const MoveCase *larger = &moves->waiting[place];
    int64_t chosen = NONE;
    for (int64_t at = 0; at < count; at++) {
        const MoveCase *each = &moves->waiting[at];
        if (!each->is_free || moves->group[each->row] != moves->group[larger->row]) continue;
        if (each->key >= larger->key || each->priority >= larger->priority) continue;
        /* Of equal ones the last, so that the larger job is passed by all of them at once. */
        if (chosen == NONE || each->key <= moves->waiting[chosen].key) chosen = at;
    }
    return chosen;
}

/* Let a job go to the place of a larger one, which gets its place. */
static void exchange(State *s, Slurm *m, Moves *moves, const MoveCase *up, const MoveCase *down, double now) {
    double points = down->priority - up->priority;
    moves->partner[up->row] = down->row;
    moves->partner[down->row] = up->row;
    moves->until[up->row] = now + moves->settings->lease_s;
    moves->until[down->row] = now + lateness_bound(moves->settings, now - m->eligible_time[down->row]);
    moves->has_given[down->row] = 1;
    set_nice(s, m, up->row, s->jobs[up->row].nice - points, now);
    set_nice(s, m, down->row, s->jobs[down->row].nice + points, now);
}

/* Put back pairs of one pool, and let others change places; return whether any job was changed. */
static bool exchange_pool(State *s, Slurm *m, Moves *moves, int64_t pool, double now) {
    int64_t count = collect(s, m, moves, pool), changes = s->tally->changes;
    if (count < 2) return false;
    take_back_pairs(s, m, moves, count, now);
    for (int64_t at = 0; at < count; at++) {
        MoveCase *each = &moves->waiting[at];
        bool is_late = is_overdue(moves, each->row, now);
        each->priority = s->jobs[each->row].priority;
        each->key = is_late ? 0.0 : moves->run_s[each->row] * moves->taken[each->row];
        each->is_free = now - s->jobs[each->row].submit_time >= moves->settings->min_age_s &&
                        moves->until[each->row] <= 0.0 && moves->group[each->row] != NONE;
        each->is_chosen = each->is_free && !moves->has_given[each->row] && !is_late;
    }
    for (int64_t at = 0; at < least_of(count, moves->settings->places); at++) {
        /* One that has risen gives its place to no other. */
        MoveCase *down = &moves->waiting[at];
        if (!down->is_chosen) continue;
        int64_t place = smaller_behind(moves, count, at);
        if (place == NONE) continue;
        MoveCase *up = &moves->waiting[place];
        up->is_free = up->is_chosen = down->is_free = 0;
        exchange(s, m, moves, up, down, now);
    }
    return s->tally->changes > changes;
}

/* Return the number of jobs submitted by an instant. */
static int64_t submitted_by(const Moves *moves, double instant) {
    int64_t low = 0, high = moves->n_submit_time;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (moves->submit_time[middle] <= instant) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Add up what users are owed: by how much the jobs of some time have waited longer than without advice, up to now. */
EXPORT void count_owed(State *s, Moves *moves, double now) {
    MoveSettings *settings = moves->settings;
    int64_t last = submitted_by(moves, now);
    settings->counted_time = now;
    memset(moves->waits, 0, (size_t)moves->n_waits * sizeof *moves->waits);
    for (int64_t row = submitted_by(moves, now - settings->owed_window_s); row < last; row++) {
        UserWaits *waits = &moves->waits[s->jobs[row].user];
        double started = s->jobs[row].start_time, plain = least(moves->plain_start_time[row], now);
        waits->given_s += (isfinite(started) ? least(started, now) : now) - plain;
        waits->plain_s += plain - moves->submit_time[row];
        waits->jobs += 1.0;
    }
    for (int64_t user = 0; user < moves->n_waits; user++) {
        UserWaits *waits = &moves->waits[user];
        double agreed_s = most(settings->agreed_ratio * waits->plain_s, settings->agreed_s * waits->jobs);
        waits->owed = waits->given_s / most(agreed_s, 1.0);
        double repaid = REPAID_DECADES * least(most(waits->owed, 0.0), MOST_DECADES);
        waits->credit = least(pow(10.0, repaid), settings->max_credit);
    }
}

/* Return whether at least two jobs with GPUs wait: one alone has no place to change. */
static bool can_change(const State *s, const Slurm *m) {
    int64_t count = 0;
    for (int64_t place = 0; place < m->control->lined && count < 2; place++)
        count += m->line[place] < s->n_jobs && s->jobs[m->line[place]].gpus > 0;
    return count >= 2;
}

/* Change the pending jobs of each pool, by lifts or exchanges, and let slurmctld sort its line. */
EXPORT void move_jobs(State *s, Slurm *m, Moves *moves, double now) {
    bool is_changed = false;
    if (!can_change(s, m)) return;
    if (now - moves->settings->counted_time >= moves->settings->count_every_s) count_owed(s, moves, now);
    for (int64_t pool = 0; pool < moves->n_capacity; pool++)
        is_changed |= (moves->settings->exchanges ? exchange_pool : lift_pool)(s, m, moves, pool, now);
    if (!is_changed) return;
    sort_line(s, m);
    ask_for_pass(m, now);
}

/* Run as `run_slurm` does, with changes every `every_s` while jobs are pending.
 *
 * Where run times are forecast, it stops before the changes of a cycle for which the model is asked.
 */
EXPORT int64_t run_moved(State *s, Slurm *m, Moves *moves, RunTimeForecasts *forecasts, double every_s, double until) {
    for (;;) {
        double cycle_time = cycle_after(s->tally->now, every_s);
        int64_t stopped = run_slurm(s, m, least(until, cycle_time));
        if (stopped != PAUSED || until < cycle_time) return stopped;
        if (s->tally->pending == 0 || !can_change(s, m)) continue;
        if (forecasts->n_jobs > 0 && ask_for_line(s, m, forecasts, cycle_time) > 0) return ROUND;
        move_jobs(s, m, moves, cycle_time);
    }
}
