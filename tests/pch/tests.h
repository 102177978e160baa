// Headers that are precompiled, as in packaging/pch/standard.h.
#include <doctest/doctest.h>

#include "../../packaging/pch/standard.h"
