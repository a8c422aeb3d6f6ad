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
enum { END_NOT, END_FINISHED, END_TIME_LIMIT, END_IMPOSSIBLE };
enum { NODE_TIER, LEAF_TIER, SPINE_TIER };
/* How a loop stops: all jobs have ended, the instant is reached, or the segments are full. */
enum { DONE, PAUSED, FULL };

static inline double least(double one, double other) { return other < one ? other : one; }
static inline double most(double one, double other) { return other > one ? other : one; }
static inline int64_t least_of(int64_t one, int64_t other) { return other < one ? other : one; }
static inline int64_t most_of(int64_t one, int64_t other) { return other > one ? other : one; }
/* Division of whole numbers, rounded up. */
static inline int64_t parts_of(int64_t all, int64_t each) { return (all + each - 1) / each; }
