#pragma once

/// How good a translation is: BLEU and chrF, as sacreBLEU has them.
/// Component: data.

#include "score/bleu.h"
#include "score/bootstrap.h"
#include "score/chrf.h"
