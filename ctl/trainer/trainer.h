/* `dpsctl trainer`: a process that feeds one rank of a job. */
#pragma once

#include "ctl/args.h"
#include "ctl/options.h"

extern const ArgSpec trainer_args;

/* Runs the trainer until its job is done, it is told to end, or it gives up; returns the exit
 * status of dpsctl. argv[0] is the verb. */
int trainer_main(int argc, char **argv, const CtlOptions *options);
