/* dpsctl trainer: its options and its work are in trainer/. */
#include "ctl/trainer/trainer.h"
#include "ctl/verbs.h"

static const ArgSpec spec = {
    .verb = "trainer",
    .positional = "",
    .summary = "Feed one rank of a job with batches",
};

const Verb verb_trainer = {&spec, trainer_main};
