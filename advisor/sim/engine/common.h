/* What all parts share: the tables of the run, constants and small helpers. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "layout.h"

/* A function that Python calls; all others are static. */
#define EXPORT

enum { NONE = -1 };
enum { FUTURE, PENDING, RUNNING, ENDED };
enum { END_NOT, END_FINISHED, END_TIME_LIMIT, END_IMPOSSIBLE, END_DEPENDENCY, END_PREEMPTED };
/* What a condition of a dependency waits for. */
enum { AWAIT_START, AWAIT_END, AWAIT_SUCCESS, AWAIT_FAILURE, AWAIT_TURN };
enum { NODE_TIER, LEAF_TIER, SPINE_TIER };
/* What happens to a node; at a LOOK a reservation begins or ends. */
enum { FAILED, REPAIRED, DRAINED, RESUMED, LOOK };
/* What a node is to the jobs of a class. */
enum { CLOSED, USABLE, REQUIRED };
/* How a loop stops: all jobs have ended, the instant is reached, the segments are full, or a decision is due. */
enum { DONE, PAUSED, FULL, ROUND };

#define YEAR_S 31536000.0

static inline double least(double one, double other) { return other < one ? other : one; }
static inline double most(double one, double other) { return other > one ? other : one; }
static inline int64_t least_of(int64_t one, int64_t other) { return other < one ? other : one; }
static inline int64_t most_of(int64_t one, int64_t other) { return other > one ? other : one; }
/* Division of whole numbers, rounded up. */
static inline int64_t parts_of(int64_t all, int64_t each) { return (all + each - 1) / each; }
