// Precompiled, as packaging/pch/standard.h: what a program's options and its reports are made of.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "packaging/pch/standard.h"
