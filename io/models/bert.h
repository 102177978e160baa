// BERT in Hugging Face's files: config.json and model.safetensors.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "../../models/bert.h"
#include "model.h"

namespace rw {

// Absent keys have BERT's defaults, and unknown ones are ignored. Throws FileError, also for models
// that this BERT is not: another activation, relative positions, a decoder.
BertConfig read_bert_config(const std::filesystem::path& file);
// `architecture` is Hugging Face's class of the model; `class_names` are the classes of a
// classifier, which become id2label and label2id.
void write_bert_config(const std::filesystem::path& file, const BertConfig& config,
                       const std::string& architecture,
                       std::span<const std::string> class_names = {});
// The classes of the classifier in `weights` by the id2label of `config_file`, or LABEL_0, LABEL_1,
// ... if it has none. Throws FileError, also if there is no classifier.
std::vector<std::string> bert_class_names(const std::filesystem::path& config_file,
                                          const std::filesystem::path& weights);

// Fills a model from a file of any BERT of its size: a model with another head, the bare encoder,
// names of early releases ("LayerNorm.gamma"). The file must have embeddings and encoder; a missing
// head keeps its values and is listed. Throws FileError before anything is written.
LoadResult load_bert(const std::filesystem::path& file, Module& model);

}  // namespace rw
