// Prints the classes of photographs, by a ResNet from a file.
#pragma once

#include "options.h"

namespace rw {

// Prints the likeliest classes of each of options.predict.
void predict(const ResNetOptions& options);

}  // namespace rw
