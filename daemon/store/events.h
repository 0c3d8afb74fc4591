/* Writing an event as a part of another request. Store thread. */
#pragma once

#include "store/db.h"
#include "store/store.h"

/* event->id is not looked at; job 0 is the daemon itself. */
int event_insert(Db *db, const EventRecord *event, Error *err);
