// Readers of data/: images in arrays, compressed files, text, vocabularies, sentences.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <sndfile.h>
#include <zlib.h>

#include "data/base/files.h"
#include "data/images/cifar.h"
#include "data/images/idx.h"
#include "data/images/loader.h"
#include "data/images/synthetic.h"
#include "data/speech/audio.h"
#include "data/speech/speech.h"
#include "data/speech/transcripts.h"
#include "data/text/sentences.h"
#include "data/text/table.h"
#include "data/text/text.h"
#include "data/text/text_examples.h"
#include "data/text/text_loader.h"
#include "data/text/tokenizer_training.h"
#include "tests/fuzz/target.h"

namespace rw::fuzz {

namespace {

// ---- images -------------------------------------------------------------------------------------

void read_idx(Input input) {
  const IdxArray array = load_idx(write_scratch("array", input));
  int64_t count = 1;
  for (const int64_t size : array.shape) count *= size;
  expect(count == static_cast<int64_t>(array.values.size()),
         "an array has the values of its shape");
  save_idx(scratch_file("again"), array);
  const IdxArray again = load_idx(scratch_file("again"));
  expect(again.shape == array.shape && again.values == array.values,
         "an array survives a round trip");
}

Bytes idx_bytes(const IdxArray& array) {
  save_idx(scratch_file("seed"), array);
  return file_bytes(scratch_file("seed"));
}

std::vector<Bytes> idx_seeds() {
  return {idx_bytes({{2, 3, 4}, Bytes(24, 7)}), idx_bytes({{5}, {0, 1, 2, 3, 9}}),
          idx_bytes({{1, 0, 4, 4}, {}})};
}

// Loads a batch of the data, with all its pixels.
void load_batch(const ImageDataset& data) {
  expect(data.size() > 0 && data.pixels.size() == data.size() * data.image_bytes(),
         "every image has its pixels");
  for (const int32_t label : data.labels)
    expect(label >= 0 && label < data.classes, "labels are of classes");
  channel_statistics(data);
  Loader loader(data, {.batch_size = 3, .shuffle = true, .crop_padding = 2, .flip = true});
  const Batch batch = loader.batch(1, loader.batches() - 1);
  expect(batch.pixels.size() == static_cast<size_t>(batch.size()) * data.image_bytes(),
         "a batch has its pixels");
}

void read_mnist(Input input) {
  const auto [labels, images] = split(input);
  write_scratch("t10k-labels-idx1-ubyte", labels);
  write_scratch("t10k-images-idx3-ubyte", images);
  load_batch(load_mnist(scratch_file("."), Split::test));
}

std::vector<Bytes> mnist_seeds() {
  const auto images = [](int64_t n, int64_t height, int64_t width) {
    const IdxArray labels{{n}, Bytes(static_cast<size_t>(n), 3)};
    const IdxArray pixels{{n, height, width}, Bytes(static_cast<size_t>(n * height * width), 99)};
    return join(idx_bytes(labels), idx_bytes(pixels));
  };
  return {images(2, 4, 4), images(7, 1, 9)};
}

void read_cifar(Input input) {
  const auto [names, images] = split(input);
  write_scratch("batches.meta.txt", names);
  write_scratch("test_batch.bin", images);
  const ImageDataset data = load_cifar10(scratch_file("."), Split::test);
  expect(data.class_names.empty() || data.class_names.size() == 10, "ten names or none");
  load_batch(data);
}

std::vector<Bytes> cifar_seeds() {
  save_cifar10(scratch_file("."), Split::test, draw_shapes(2, 1));
  return {join(file_bytes(scratch_file("batches.meta.txt")),
               file_bytes(scratch_file("test_batch.bin")))};
}

// ---- compressed files ---------------------------------------------------------------------------

void read_gzip(Input input) {
  constexpr uint64_t most = uint64_t{8} << 20;
  expect(read_file(write_scratch("file.gz", input), most).size() <= most, "a limit is kept");
}

Bytes gzip(const Bytes& plain, const char* mode) {
  const gzFile file = gzopen(scratch_file("seed.gz").c_str(), mode);
  gzwrite(file, plain.data(), static_cast<unsigned>(plain.size()));
  gzclose(file);
  return file_bytes(scratch_file("seed.gz"));
}

std::vector<Bytes> gzip_seeds() {
  Bytes mixed(5000);
  for (size_t i = 0; i < mixed.size(); ++i) mixed[i] = static_cast<uint8_t>(i * i % 251);
  Bytes twice = gzip(mixed, "wb9");
  const Bytes once = twice;
  twice.insert(twice.end(), once.begin(), once.end());
  return {once, twice, gzip(mixed, "wb0"), gzip(Bytes(1 << 20, 7), "wb9"), gzip({}, "wb"), mixed};
}

// ---- text ---------------------------------------------------------------------------------------

constexpr std::string_view small_vocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\nab\nthe\n##s\n,\n.\ne\xcc\x81\n\xe4\xb8\xad\n";

const Tokenizer& tokenizer() {
  static const Tokenizer instance(
      Vocabulary::load(write_scratch("small-vocab.txt", to_bytes(small_vocabulary))));
  return instance;
}

void expect_examples(const std::vector<TextExample>& examples, size_t length, int64_t tokens) {
  for (const TextExample& example : examples) {
    expect(example.ids.size() <= length, "examples keep their length");
    expect(example.second >= 0 && example.second <= static_cast<int64_t>(example.ids.size()),
           "the second text begins within the example");
    for (const int32_t id : example.ids)
      expect(id >= 0 && id < tokens, "ids are of the vocabulary");
  }
  if (examples.empty()) return;
  TextLoader loader(examples, tokenizer().vocabulary(),
                    {.batch_size = 2, .masking = MaskingOptions{.whole_words = true}});
  const TextBatch batch = loader.batch(0, loader.batches() - 1);
  expect(batch.ids.size() == static_cast<size_t>(batch.rows * batch.length), "a batch is full");
}

void read_text(Input input) {
  const std::vector<std::filesystem::path> files = {write_scratch("text", input)};
  const std::vector<Document> documents = read_documents(files);
  const int64_t tokens = tokenizer().vocabulary().size();
  expect_examples(pack_sequences(documents, tokenizer(), 16), 16, tokens);
  if (documents.size() > 1)
    expect_examples(pack_pairs(documents, tokenizer(), {.max_length = 12}), 12, tokens);
  if (input.size() > 1000) return;
  const Vocabulary trained = train_vocabulary(documents, {.size = 60, .max_alphabet = 40});
  expect(trained.size() <= 60, "a trained vocabulary keeps its size");
}

std::vector<Bytes> text_seeds() {
  return {to_bytes("the ab, a second.\nab ab the\n\nanother document\n"),
          to_bytes("\xef\xbb\xbfT\xc3\xa9\xce\xa3 \xe4\xb8\xad\xe6\x96\x87 "
                   "a\xcc\x81\n\n\xf0\x9f\x98\x80 [MASK]")};
}

void read_vocabulary(Input input) {
  const Vocabulary vocabulary = Vocabulary::load(write_scratch("vocab.txt", input));
  for (int64_t id = 0; id < vocabulary.size(); ++id)
    expect(vocabulary.id(vocabulary.token(id)) == id, "a token has its id");
  vocabulary.save(scratch_file("vocab-again.txt"));
  const Vocabulary again = Vocabulary::load(scratch_file("vocab-again.txt"));
  expect(again.size() == vocabulary.size(), "a vocabulary survives a round trip");
  const Tokenizer own(vocabulary);
  expect(own.encode("The abs, \xe4\xb8\xad. [MASK] \xc3\xa9", 8).ids.size() <= 8, "encodings fit");
}

std::vector<Bytes> vocabulary_seeds() {
  return {to_bytes(small_vocabulary), to_bytes("[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\nx"),
          to_bytes("!\n##a\n[MASK]\nab\n##ab\n[SEP]\n##\n[CLS]\n\xe4\xb8\xad\n##\xcc\x81\n[UNK]\n"
                   "[unused0]\n[PAD]\nthe\n\xf0\x9f\x98\x80\n")};
}

void read_tokens(Input input) {
  if (input.empty()) return;
  const int choice = input[0];
  const std::string_view text(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  static const Vocabulary vocabulary = tokenizer().vocabulary();
  const Tokenizer own(vocabulary, {.lower_case = (choice & 1) != 0,
                                   .max_input_chars = 1 + (choice >> 2),
                                   .special_tokens = (choice & 2) != 0});
  size_t before = 0;
  for (const Token& token : own.tokenize(text)) {
    expect(token.begin < token.end && token.begin >= before && token.end <= text.size(),
           "tokens stand for bytes of the text, in order");
    expect(token.id >= 0 && token.id < vocabulary.size(), "ids are of the vocabulary");
    before = token.begin;
  }
  const Encoding encoding = own.encode(text, 2 + choice);
  expect(encoding.ids.size() <= static_cast<size_t>(2 + choice), "encodings fit");
  own.decode(encoding.ids);
  const size_t half = text.size() / 2;
  expect(own.encode_pair(text.substr(0, half), text.substr(half), 16).ids.size() <= 16,
         "pairs fit");
}

std::vector<Bytes> token_seeds() {
  std::vector<Bytes> seeds;
  for (const Bytes& text : text_seeds())
    for (const uint8_t choice : {0, 3, 90}) {
      seeds.push_back({choice});
      seeds.back().insert(seeds.back().end(), text.begin(), text.end());
    }
  return seeds;
}

// Reads a sound at its own rate and at another one.
void read_sound(Input input) {
  const std::filesystem::path file = write_scratch("sound", input);
  const Audio audio = read_audio(file, input.size() % 2 ? speech_rate : 11025);
  expect(!audio.samples.empty(), "there is sound");
  for (const float x : audio.samples) expect(std::isfinite(x), "samples are numbers");
  expect(audio_length(file, audio.rate) == static_cast<int64_t>(audio.samples.size()),
         "the length is what the header said");
}

// Returns WAV, from our own writer and with float samples, and FLAC.
std::vector<Bytes> sound_seeds() {
  std::vector<float> wave(700);
  for (size_t i = 0; i < wave.size(); ++i) wave[i] = 0.5f * std::sin(0.1f * static_cast<float>(i));
  write_wav(scratch_file("seed"), {wave, 8000});
  std::vector<Bytes> seeds = {file_bytes(scratch_file("seed"))};
  for (const int format : {SF_FORMAT_WAV | SF_FORMAT_FLOAT, SF_FORMAT_FLAC | SF_FORMAT_PCM_16}) {
    SF_INFO info{};
    info.samplerate = 16000, info.channels = 2, info.format = format;
    SNDFILE* sound = sf_open(scratch_file("seed").c_str(), SFM_WRITE, &info);
    sf_writef_float(sound, wave.data(), 350);
    sf_close(sound);
    seeds.push_back(file_bytes(scratch_file("seed")));
  }
  return seeds;
}

// Reads the transcripts of one chapter, beside sounds that exist.
void read_speech(Input input) {
  static const std::filesystem::path chapter = [] {
    const std::filesystem::path folder = scratch_file("speech");
    for (const char* voice : {"anna/1", "ben/1"})
      for (const char* name : {"a", "b-2"})
        write_wav(folder / voice / (std::string(name) + ".wav"), {std::vector<float>(160), 16000});
    write_scratch("speech/ben/1/ben.trans.txt", to_bytes("a one\nb-2 two"));
    return folder / "anna/1";
  }();
  // A sound file is opened for each line.
  write_scratch("speech/anna/1/anna.trans.txt", input.first(std::min<size_t>(input.size(), 2000)));
  size_t utterances = 0;
  for (const Split split : {Split::train, Split::test}) {
    const SpeechDataset data = list_speech(scratch_file("speech"), split, 0.5);
    utterances += data.size();
    for (const Utterance& u : data.utterances) {
      expect(u.samples == 160 && std::filesystem::is_regular_file(u.file), "a line has its sound");
      expect(u.text == normalised_transcript(u.text), "a transcript is normal");
    }
    const std::vector<std::string> texts = data.texts();
    if (std::ranges::any_of(texts, [](const std::string& text) { return !text.empty(); }))
      SpeechUnits::of(SpeechUnit::word, texts);
  }
  expect(utterances > 2, "all lines are in one of the splits");
}

std::vector<Bytes> speech_seeds() {
  return {to_bytes("a THE ab\nb-2 one  Two\n"), to_bytes("b-2 x\r\n\r\na it's\r\n"),
          to_bytes("a\nb-2 \n")};
}

void read_sentences(Input input) {
  const SentenceDataset data = load_sentences(write_scratch("train.tsv", input));
  expect(data.labels.empty() || data.labels.size() == data.size(), "labels for all or none");
  expect(data.seconds.empty() || data.seconds.size() == data.size(), "pairs all or none");
  for (const int32_t label : data.labels)
    expect(label >= 0 && static_cast<size_t>(label) < data.class_names.size(),
           "labels are of classes");
  expect_examples(sentence_examples(data, tokenizer(), 16), 16, tokenizer().vocabulary().size());
}

void read_csv(Input input) {
  const Table table = read_table(write_scratch("table.csv", input));
  expect(!table.rows.empty() && table.rows.size() == table.lines.size(), "rows have their lines");
  for (const auto& row : table.rows) expect(!row.empty(), "a row has cells");
}

std::vector<Bytes> csv_seeds() {
  return {to_bytes("a,\"b, c\"\r\n1,\"x \"\"y\"\"\"\n\"\",\"two\nlines\"\n,\n\n"),
          to_bytes("\xef\xbb\xbfsentence,label\nthe ab,1")};
}

std::vector<Bytes> sentence_seeds() {
  return {to_bytes("sentence\tlabel\na good film \t1\nbad\t0\n"),
          to_bytes("index\tsentence\r\n0\tthe ab\r\n1\t\r\n"),
          to_bytes("sentence1\tsentence2\tgold_label\nthe\tab\tno\na\tb\t-\nab\ta\tyes\n"),
          to_bytes("id\tquestion1\tquestion2\tis_duplicate\n1\ta\tb\t0\n2\tab\tthe\t1\n3\t\t\t0"),
          to_bytes("Quality\t#1 String\t#2 String\n1\tthe ab\ta\n0\t\"b\ta\"\n"),
          to_bytes("premise\thypothesis\tlabel\r\na\tb\tneutral\r\nthe\tab\ta b\r\n"),
          to_bytes("index\tquestion\tsentence\tlabel\n0\ta\tb\tnot_entailment\n")};
}

}  // namespace

std::vector<Target> data_targets() {
  using Words = std::vector<std::string_view>;
  const Words text = {"\n\n",     "\t",       "[MASK]",       "[SEP]", "##",
                      "\xce\xa3", "\xcc\x81", "\xe4\xb8\xad", "ab",    "\xc4\xb0"};
  Words tokens = text;
  for (const char* word : {"[PAD]", "[UNK]", "[CLS]", "##ab", "a", "\r", "\xc3\xa9", "\xff", ""})
    tokens.push_back(word);
  const Words columns = {"sentence",
                         "sentence1",
                         "sentence2",
                         "label",
                         "gold_label",
                         "question",
                         "question1",
                         "question2",
                         "premise",
                         "hypothesis",
                         "#1 String",
                         "#2 String",
                         "is_duplicate",
                         "Quality",
                         "\t",
                         "\r\n",
                         "10000",
                         "9999",
                         "-1",
                         "-",
                         "0",
                         "1.5",
                         "1e3",
                         "nan",
                         "\xff",
                         "\xe4\xb8\xad",
                         "yes",
                         " no",
                         ""};
  const Words transcripts = {"a", "b-2",  "b-2.wav",      "../../ben/1/a", "/", "IT'S", "  ", "\r",
                             "",  "\xff", "\xe4\xb8\xad", "anna.trans.txt"};
  return {{"idx", read_idx, idx_seeds},
          {"mnist", read_mnist, mnist_seeds},
          {"cifar", read_cifar, cifar_seeds, {"\n", "airplane"}},
          {"gzip", read_gzip, gzip_seeds, {"\x1f\x8b\x08"}},
          {"text", read_text, text_seeds, text},
          {"vocabulary", read_vocabulary, vocabulary_seeds, tokens, true, ' '},
          {"tokenizer", read_tokens, token_seeds, text, false},
          {"sound", read_sound, sound_seeds, {"RIFF", "WAVE", "fmt ", "data", "fLaC", "LIST"}},
          {"csv",
           read_csv,
           csv_seeds,
           {"\"", "\"\"", ",\"", "\",", "\r\n", "\r", "\xef\xbb\xbf"},
           true,
           ','},
          {"sentences", read_sentences, sentence_seeds, columns, true, '\t'},
          {"speech", read_speech, speech_seeds, transcripts, true, ' '}};
}

}  // namespace rw::fuzz
