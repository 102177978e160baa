#define DOCTEST_CONFIG_IMPLEMENT  // the next one says it, unless the header was there before:
                                  // tests/pch
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cstdlib>

// What somebody tuned on this machine is not what tests are about.
const int untuned = setenv("REWIND_NO_TUNING", "1", 0);
