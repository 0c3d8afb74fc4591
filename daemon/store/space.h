/* Gives the space of deleted rows back to the file system. Store thread. */
#pragma once

#include "store/db.h"

/* Shrinks the file by a bounded number of pages and empties the write-ahead log. What fails here
 * is logged and tried again after the next save: nothing depends on it. */
void space_reclaim(Db *db);
