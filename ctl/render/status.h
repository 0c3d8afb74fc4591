/* A job's status for people: in full, as a live block, as one line. Text of the server's is
 * sanitised. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "ctl/render/term.h"
#include "dps.pb-c.h"

/* Colour that a job's or a trainer's state is shown in. */
TermColour status_state_colour(Dps__V1__JobState state);
TermColour status_trainer_colour(const char *state);

/* Share of the work that is done, 0 … 1; negative: unknown. */
double status_share(const Dps__V1__JobStatus *job);

/* Whether there was an evaluation while training. */
bool status_is_evaluated(const Dps__V1__JobStatus *job);
/* The trainer that has waited longest for others, or NULL. */
const Dps__V1__TrainerStatus *status_longest_waiting(const Dps__V1__JobStatus *job);
/* Whether one waits for so long that it is worth saying. */
bool status_is_held_up(const Dps__V1__JobStatus *job);

/* `dpsctl status`. 0 or -ENOMEM. */
int status_print(FILE *out, const Term *term, const Dps__V1__JobStatus *job, uint64_t now_unix_ms);

/* `dpsctl watch` on a terminal: about 6 lines and one a trainer. `age_s` is how old the status is:
 * the time to the end goes on between two. `note` stands at the bottom, or NULL. 0 or -ENOMEM. */
int status_print_live(FILE *out, const Term *term, const Dps__V1__JobStatus *job, double age_s,
                      const char *note);

/* `dpsctl watch` in a pipe: one line. */
void status_print_line(FILE *out, const Dps__V1__JobStatus *job);
