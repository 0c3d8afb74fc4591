/* Looks for damage when the database is opened. */
#pragma once

#include <stdbool.h>

#include "store/db.h"

/* The chunks of checkpoints, which are nearly all of the file, are left to their checksums, so that
 * the time stays short; the metrics are looked at only after an unclean end. -EBADMSG */
int check_tables(Db *db, bool unclean, Error *err);
