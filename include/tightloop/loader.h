#pragma once

/// Files to micro-batches: reading, rows, and a loader that prepares them ahead in threads.
/// Component: data.

#include "data/batch/batch.h"
#include "data/batch/loader.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "data/store/documents.h"
