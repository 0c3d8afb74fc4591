/* What pause, resume, cancel and restore share: a call that answers the job's new status. */
#pragma once

#include "ctl/request.h"

/* Prints what a job has become, "job 3 (mnist-cnn) is PAUSED"; returns the exit status. */
int job_change_print(const Request *request, const Dps__V1__JobStatus *job);

/* The whole verb, for a method that takes a JobRequest. */
int job_change(const ArgSpec *spec, const char *method, int argc, char **argv,
               const CtlOptions *options);
