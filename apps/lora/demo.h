// The work of the program for adapters without a user's model and examples: it makes a small model
// that answers in sentences, and examples of answers in another form.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "../../models/decoder_config.h"

namespace rw {

// The shape of the small model.
DecoderConfig demo_config();

// Files of the demonstration.
struct DemoFiles {
  std::filesystem::path model, data;
};
// Makes them in a folder, unless they are there. The model, which is trained for that on the
// default device in about a minute, answers a question about a thing by a sentence, "The name is
// apple; the kind is fruit."; the examples answer in a form, "The kind: fruit; the name: apple."
// `say` receives a line about what is made. FileError.
DemoFiles make_demo(const std::filesystem::path& folder,
                    const std::function<void(const std::string&)>& say);

}  // namespace rw
