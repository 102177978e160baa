// A training run of the ResNet program.
#pragma once

#include "images.h"
#include "options.h"

namespace rw {

// Trains a network on these images, or with --eval only evaluates it.
void run_training(ResNetOptions& options, const Images& images);

}  // namespace rw
