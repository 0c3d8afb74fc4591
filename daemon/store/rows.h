/* Memory for records: copies of texts, arrays that grow. Any thread. */
#pragma once

#include <stddef.h>

/* A copy of text, of "" for NULL. -ENOMEM */
int text_copy(const char *text, char **ret);

/* Makes room for one more row of `size` bytes in the array *rows of n rows and *capacity places;
 * new room is zeroed. -ENOMEM */
int rows_grow(void **rows, size_t n, size_t *capacity, size_t size);
