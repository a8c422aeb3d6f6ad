/* The run times that the shipped model forecasts from the jobs that ended: what predict/history.py remembers, the rows of
 * predict/run_time_features.py, and the means of predict/run_time_curve.py. The model itself runs in between.
 */

#define HOUR_S 3600.0
#define MOST_THRESHOLDS 256

/* Of the levels at which a curve is read: the first bounds the mean, which is that of the last ones. */
enum { FIRST_OF_MEAN = 5 };

static const double wait_steps_s[] = WAITS_S, quantile_levels[] = LEVELS;

/* Return the last of the steps that a wait has reached. */
static double wait_reached(double waited_s) {
    double reached = wait_steps_s[0];
    for (size_t step = 1; step < sizeof wait_steps_s / sizeof *wait_steps_s; step++)
        if (waited_s >= wait_steps_s[step]) reached = wait_steps_s[step];
    return reached;
}

static void sort_reals(double *values, int64_t count) {
    for (int64_t at = 1; at < count; at++) {
        double value = values[at];
        int64_t place = at;
        for (; place > 0 && values[place - 1] > value; place--) values[place] = values[place - 1];
        values[place] = value;
    }
}

/* Return a quantile of sorted values; NaN where there are none. */
static double quantile_of(const double *values, int64_t count, double level) {
    if (count == 0) return NAN;
    double place = level * (double)(count - 1), below = floor(place), weight = place - below;
    return values[(int64_t)below] * (1.0 - weight) + values[least_of((int64_t)below + 1, count - 1)] * weight;
}

/* Sum up the runs of a key. */
static void sum_up(RunTimeForecasts *t, int64_t slot) {
    const KeptRun *runs = &t->runs[slot * RUNS_KEPT];
    RunsOfKey *key = &t->keys[slot];
    int64_t count = key->kept, trials = 0;
    double logs[RUNS_KEPT], ratios[RUNS_KEPT], centred[RUNS_KEPT];
    double weight = 1.0, weights = 0.0, recent = 0.0, steps = 0.0, timed_out = 0.0, instant = 0.0;
    for (int64_t at = 0; at < count; at++, weight *= DECAY) {
        double run_s = runs[at].run_s, ratio = run_s / runs[at].limit_s;
        bool is_trial = run_s < INSTANT_S && run_s < TRIAL_RATIO * runs[at].limit_s;
        if (is_trial) trials++;
        else centred[at - trials] = runs[at].log_run;
        logs[at] = runs[at].log_run;
        ratios[at] = log(ratio);
        recent += logs[at] * weight;
        weights += weight;
        if (at > 0 && at < 8) steps += fabs(logs[at] - logs[at - 1]);
        timed_out += ratio >= TIMED_OUT;
        instant += run_s < INSTANT_S;
    }
    double kept = (double)count, pairs = (double)(least_of(count, 8) - 1);
    key->last = count > 0 ? logs[0] : NAN;
    key->mean_of_two = count > 1 ? (logs[0] + logs[1]) / 2.0 : key->last;
    key->recent_mean = recent / weights;
    key->step = count > 1 ? steps / pairs : NAN;
    key->timed_out_ratio = timed_out / kept;
    key->instant_ratio = instant / kept;
    key->time_between = count > 0 ? log1p(most(runs[0].end_time - runs[count - 1].end_time, 0.0)) : NAN;
    sort_reals(logs, count);
    sort_reals(ratios, count);
    sort_reals(centred, count - trials);
    key->quantile_10 = quantile_of(logs, count, quantile_levels[0]);
    key->quantile_25 = quantile_of(logs, count, quantile_levels[1]);
    key->quantile_50 = quantile_of(logs, count, quantile_levels[2]);
    key->quantile_75 = quantile_of(logs, count, quantile_levels[3]);
    key->quantile_90 = quantile_of(logs, count, quantile_levels[4]);
    key->ratio_median = quantile_of(ratios, count, 0.5);
    key->centre = quantile_of(centred, count - trials, 0.5);
}

/* Sum up the runs of all keys, as those of the model's own history. */
EXPORT void sum_up_runs(RunTimeForecasts *t) {
    for (int64_t slot = 0; slot < t->n_keys; slot++) {
        KeptRun *runs = &t->runs[slot * RUNS_KEPT];
        for (int64_t at = 0; at < t->keys[slot].kept; at++) {
            runs[at].log_run = log(runs[at].run_s);
            runs[at].log_limit = log(runs[at].limit_s);
        }
        sum_up(t, slot);
    }
}

static void add_run(RunTimeForecasts *t, int32_t slot, KeptRun run) {
    if (slot == NONE) return;
    KeptRun *runs = &t->runs[(int64_t)slot * RUNS_KEPT];
    RunsOfKey *key = &t->keys[slot];
    memmove(runs + 1, runs, (RUNS_KEPT - 1) * sizeof *runs);
    runs[0] = run;
    key->count++;
    key->kept = least_of(key->kept + 1, RUNS_KEPT);
    key->written = ++t->settings->version;
    sum_up(t, slot);
}

/* Remember the jobs that ended since the last call, but those of which accounting says nothing that helps. */
static void learn_ended(const State *s, RunTimeForecasts *t) {
    RunTimeSettings *settings = t->settings;
    for (; settings->seen < s->tally->segments; settings->seen++) {
        const Segment *segment = &s->segments[settings->seen];
        const Job *job = &s->jobs[segment->job];
        const ForecastJob *asked = &t->jobs[segment->job];
        if (job->phase != ENDED || job->end_time != segment->end_time) continue;
        double run_s = segment->end_time - segment->start_time, end_time = segment->end_time + settings->begins_at;
        bool has_name = asked->user != NONE || asked->account != NONE;
        if (!(run_s > 0.0) || !has_name || !(job->limit_s > 0.0) || job->limit_s >= settings->longest_s) continue;
        if (run_s > 1.5 * job->limit_s + HOUR_S || asked->submit_time < 0.0 || asked->submit_time > end_time) continue;
        double limit_s = most(job->limit_s, 1.0);
        KeptRun run = {.run_s = least(most(run_s, 1.0), limit_s), .limit_s = limit_s, .end_time = end_time};
        run.log_run = log(run.run_s);
        run.log_limit = log(limit_s);
        add_run(t, asked->request, run);
        add_run(t, asked->user, run);
        add_run(t, asked->account, run);
    }
}

/* Return the key that tells most of a job's user; NONE where nothing is remembered. */
static int32_t user_key(const RunTimeForecasts *t, const ForecastJob *job) {
    if (job->user != NONE && t->keys[job->user].count > 0) return job->user;
    return job->account != NONE && t->keys[job->account].count > 0 ? job->account : NONE;
}

static int32_t near_key(const RunTimeForecasts *t, const ForecastJob *job) {
    return job->request != NONE && t->keys[job->request].count > 0 ? job->request : NONE;
}

static int64_t written_to(const RunTimeForecasts *t, int32_t slot) {
    return slot == NONE ? 0 : t->keys[slot].written;
}

static int64_t ended_since(const RunTimeForecasts *t, int32_t slot, double submit_time) {
    int64_t count = 0;
    if (slot == NONE) return 0;
    for (int64_t at = 0; at < t->keys[slot].kept; at++)
        count += t->runs[(int64_t)slot * RUNS_KEPT + at].end_time > submit_time;
    return count;
}

static inline float column_of(double value) {
    return (float)(isfinite(value) ? value : MISSING);
}

/* Write the columns of one key for a job, `ended` of whose jobs ended since its submission; return the place after them. */
static float *write_key(const RunTimeForecasts *t, int32_t slot, const ForecastJob *job, int64_t ended, float *row) {
    static const RunsOfKey nothing = {
        .last = NAN, .mean_of_two = NAN, .recent_mean = NAN, .quantile_10 = NAN, .quantile_25 = NAN, .quantile_50 = NAN,
        .quantile_75 = NAN, .quantile_90 = NAN, .step = NAN, .ratio_median = NAN, .timed_out_ratio = NAN,
        .instant_ratio = NAN, .time_between = NAN,
    };
    const RunsOfKey *key = slot == NONE ? &nothing : &t->keys[slot];
    const KeptRun *runs = slot == NONE ? NULL : &t->runs[(int64_t)slot * RUNS_KEPT];
    double anchor = job->anchor, limit = job->log_limit, same_limit = 0.0;
    for (int64_t at = 0; at < key->kept; at++) same_limit += fabs(runs[at].log_limit - limit) < 0.01;
    *row++ = column_of(key->last - anchor);
    *row++ = column_of(key->mean_of_two - anchor);
    *row++ = column_of(key->recent_mean - anchor);
    *row++ = column_of(key->quantile_10 - anchor);
    *row++ = column_of(key->quantile_25 - anchor);
    *row++ = column_of(key->quantile_50 - anchor);
    *row++ = column_of(key->quantile_75 - anchor);
    *row++ = column_of(key->quantile_90 - anchor);
    *row++ = column_of((key->quantile_75 - anchor) - (key->quantile_25 - anchor));
    *row++ = column_of(key->step);
    *row++ = column_of(key->ratio_median + limit - anchor);
    *row++ = column_of(key->timed_out_ratio);
    *row++ = column_of(key->instant_ratio);
    *row++ = column_of(log1p((double)key->count));
    *row++ = column_of(runs ? log1p(most(job->submit_time + job->waited_s - runs[0].end_time, 0.0)) : NAN);
    *row++ = column_of(runs ? runs[0].log_limit - limit : NAN);
    *row++ = column_of(same_limit / (double)key->kept);
    *row++ = column_of(key->time_between);
    *row++ = column_of(log1p((double)ended));
    return row;
}

/* Write the row of a job for the model. */
static void write_row(RunTimeForecasts *t, ForecastJob *job, int32_t near, int32_t user, float *row) {
    int64_t siblings = ended_since(t, near, job->submit_time);
    double limit = job->log_limit, anchor = near == NONE ? NAN : t->keys[near].centre;
    job->group = near != NONE ? REQUEST_KNOWN : user != NONE ? USER_KNOWN : COLD;
    if (siblings > 0) job->group = SIBLINGS_ENDED;
    if (isnan(anchor) && user != NONE) anchor = t->keys[user].centre;
    /* Jobs that were submitted together end alike. */
    if (siblings > 0) anchor = t->keys[near].recent_mean;
    if (isnan(anchor)) anchor = limit + log(COLD_RATIO);
    job->anchor = least(limit, anchor);
    *row++ = column_of(limit);
    *row++ = column_of(limit - job->anchor);
    *row++ = (float)job->group;
    *row++ = job->gpus;
    *row++ = job->cpus;
    *row++ = job->cpus_per_gpu;
    *row++ = job->memory_per_cpu;
    *row++ = job->nodes;
    *row++ = column_of(log1p(job->waited_s));
    row = write_key(t, near, job, siblings, row);
    write_key(t, user, job, ended_since(t, user, job->submit_time), row);
}

/* Return the number of the row that stands last: that of an equal one before it, which is then kept in its place.
 *
 * Jobs of one request that waited when the last one ended ask alike. `places` are `mask + 1` slots of a hash table, which
 * hold row numbers from 1 on.
 */
static int64_t row_like_last(RunTimeForecasts *t, int64_t mask) {
    RunTimeSettings *settings = t->settings;
    size_t size = (size_t)t->features_columns * sizeof *t->features;
    const float *last = &t->features[settings->rows * t->features_columns];
    uint64_t hash = 0;
    for (int64_t column = 0; column < t->features_columns; column++) {
        uint32_t bits;
        memcpy(&bits, last + column, sizeof bits);
        hash = (hash ^ bits) * 0x9E3779B97F4A7C15u;
    }
    int64_t slot = (int64_t)(hash >> 32) & mask;
    for (; t->places[slot] > 0; slot = (slot + 1) & mask)
        if (memcmp(last, &t->features[(t->places[slot] - 1) * t->features_columns], size) == 0) return t->places[slot] - 1;
    t->places[slot] = (int32_t)++settings->rows;
    return settings->rows - 1;
}

/* Write the rows of the jobs whose forecasts are out of date, each once; return the number of these jobs. */
static int64_t write_due(const State *s, RunTimeForecasts *t, const int32_t *rows, int64_t count, double now) {
    int64_t asked = 0, slots = 1;
    while (slots < 2 * count) slots *= 2;
    memset(t->places, 0, (size_t)slots * sizeof *t->places);
    t->settings->rows = 0;
    for (int64_t at = 0; at < count; at++) {
        ForecastJob *job = &t->jobs[rows[at]];
        int32_t near = near_key(t, job), user = user_key(t, job);
        int64_t near_written = written_to(t, near), user_written = written_to(t, user);
        double waited_s = wait_reached(now - s->jobs[rows[at]].submit_time);
        if (job->waited_s == waited_s && job->near_written == near_written && job->user_written == user_written) continue;
        job->waited_s = waited_s;
        job->near_written = near_written;
        job->user_written = user_written;
        write_row(t, job, near, user, &t->features[t->settings->rows * t->features_columns]);
        t->answer[asked] = (int32_t)row_like_last(t, slots - 1);
        t->asked[asked++] = rows[at];
    }
    return t->settings->due = asked;
}

/* Learn from the jobs that ended, and write the rows of the pending GPU jobs whose forecasts are out of date. */
static int64_t ask_for_line(const State *s, const Slurm *m, RunTimeForecasts *t, double now) {
    int64_t count = 0;
    for (int64_t place = 0; place < m->control->lined; place++) {
        int32_t row = m->line[place];
        if (row < s->n_jobs && s->jobs[row].gpus > 0) t->asked[count++] = row;
    }
    learn_ended(s, t);
    return write_due(s, t, t->asked, count, now);
}

/* Learn from the jobs that ended, and write the rows of those among `rows` whose forecasts are out of date. */
EXPORT int64_t ask_run_times(State *s, RunTimeForecasts *t, const Integers *rows, double now) {
    learn_ended(s, t);
    return write_due(s, t, rows->items, rows->n_items, now);
}

/* One answer of the model: levels that rise from 0 to 1, at points over an origin. */
typedef struct {
    double levels[MOST_THRESHOLDS + 2], points[MOST_THRESHOLDS + 2], origin;
    int64_t count;
} Answer;

/* Close an answer at both ends. */
static void close_answer(Answer *answer, const float *shares, const double *thresholds, int64_t count, double origin, double end) {
    double highest = 0.0;
    answer->origin = origin;
    answer->count = count + 2;
    answer->levels[0] = 0.0;
    answer->points[0] = thresholds[0] - TAIL;
    for (int64_t at = 0; at < count; at++) {
        highest = most(highest, least(most((double)shares[at], 0.0), 1.0));
        answer->levels[at + 1] = highest;
        answer->points[at + 1] = thresholds[at];
    }
    answer->levels[count + 1] = 1.0;
    answer->points[count + 1] = end;
}

/* Interpolate between two points; where they coincide, the second. */
static double between(double wanted, double low, double high, double from, double to) {
    double width = high - low, share = width > 0.0 ? (wanted - low) / width : 1.0;
    return from + least(most(share, 0.0), 1.0) * (to - from);
}

/* Return the level of an answer at the logarithm of a run time; `above` is where the last search ended. */
static double level_at(const Answer *answer, double log_s, int64_t *above) {
    double wanted = log_s - answer->origin;
    while (*above < answer->count - 1 && answer->points[*above] < wanted) ++*above;
    int64_t at = *above;
    return between(wanted, answer->points[at - 1], answer->points[at], answer->levels[at - 1], answer->levels[at]);
}

/* Return the mean run time that the answers of the model stand for, in seconds. */
static double mean_of(const RunTimeForecasts *t, const ForecastJob *job, const float *shares) {
    Answer near, far;
    int64_t thresholds = t->n_over_anchor;
    close_answer(&near, shares, t->over_anchor, thresholds, job->anchor, t->over_anchor[thresholds - 1] + TAIL);
    close_answer(&far, shares + thresholds, t->over_limit, t->n_over_limit, job->log_limit, 0.0);
    double levels[2 * MOST_THRESHOLDS + 4], logs[2 * MOST_THRESHOLDS + 4];
    double share = job->group == SIBLINGS_ENDED ? 1.0 : 0.5;
    int64_t points = near.count + far.count, of_near = 0, of_far = 0, near_above = 1, far_above = 1;
    for (int64_t at = 0; at < points; at++) {
        double one = of_near < near.count ? near.origin + near.points[of_near] : INFINITY;
        double other = of_far < far.count ? far.origin + far.points[of_far] : INFINITY;
        if (one <= other) of_near++;
        else of_far++;
        logs[at] = least(one, other);
        levels[at] = share * level_at(&near, logs[at], &near_above) + (1.0 - share) * level_at(&far, logs[at], &far_above);
    }
    double cap_s = exp(job->log_limit), shortest = INFINITY, sum = 0.0;
    int64_t above = 1;
    for (int64_t at = 0; at < t->n_levels; at++) {
        if (at > 0 && at < FIRST_OF_MEAN) continue;
        double wanted = t->levels[at];
        /* Those of the mean rise. */
        if (at == FIRST_OF_MEAN) above = 1;
        while (above < points - 1 && levels[above] < wanted) above++;
        double log_s = between(wanted, levels[above - 1], levels[above], logs[above - 1], logs[above]);
        double run_s = least(exp(least(most(log_s, 0.0), job->log_limit)), cap_s);
        if (at == 0) shortest = run_s;
        else sum += run_s;
    }
    return least(most(sum / (double)(t->n_levels - FIRST_OF_MEAN), shortest), cap_s);
}

/* Take the answers of the model for the jobs asked for last; where it does not know, a share of the limit. */
EXPORT void answer_run_times(State *s, RunTimeForecasts *t, const Shares *shares) {
    for (int64_t at = 0; at < t->settings->due; at++) {
        int32_t row = t->asked[at];
        const ForecastJob *job = &t->jobs[row];
        double limit_s = s->jobs[row].limit_s;
        bool is_known = job->group != COLD || job->is_supported;
        double mean_s = mean_of(t, job, &shares->items[t->answer[at] * shares->items_columns]);
        t->run_s[row] = is_known ? least(mean_s, limit_s) : t->settings->limit_ratio * limit_s;
    }
}
