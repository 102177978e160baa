// Models in files: PyTorch's layout, other dtypes, other names.
#include <doctest/doctest.h>

#include "backends/open.h"
#include "core/memory/default_device.h"
#include "io/models/classifier.h"
#include "io/models/model.h"
#include "models/resnet.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using test::contains;
using test::message_of;
using test::on_each_device;
using test::some_values;
namespace fs = std::filesystem;

namespace {

ResNetConfig small_resnet(int classes = 5) {
  ResNetConfig config = resnet_imagenet(18, classes);
  config.widths = {4, 8, 8, 8};
  return config;
}

}  // namespace

TEST_CASE("model files: what a classifier is shown, and its classes" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "c.safetensors";
  manual_seed(1);
  ResNet net(small_resnet());
  const ImageClassifier all{"resnet18", 32, {"cat", "dog"}, {0.25f, 0.5f, 0.75f}, {0.5f, 1, 2}};
  for (const ImageClassifier& classifier : {all, ImageClassifier{.model = "resnet18"}}) {
    save_model(path, net, to_metadata(classifier));
    const ImageClassifier read = read_image_classifier(SafetensorsFile(path));
    CHECK(read.model == classifier.model);
    CHECK(read.image == classifier.image);
    CHECK(read.class_names == classifier.class_names);
    CHECK(read.mean == classifier.mean);
    CHECK(read.std == classifier.std);
  }
}

TEST_CASE("model files: torchvision's layout, f16, missing and unexpected names") {
  on_each_device([] {
    const TemporaryFolder folder;
    const fs::path path = folder.path / "m.safetensors";
    manual_seed(1);
    ResNet saved(small_resnet());
    const Tensor x = tensor(some_values(2 * 32 * 32 * 3), {2, 32, 32, 3});
    saved(x);  // moves the running statistics
    save_model(path, saved, {{"note", "test"}});
    {
      const SafetensorsFile file(path);
      CHECK(file.metadata() == Metadata{{"format", "pt"}, {"note", "test"}});
      CHECK(file.tensors().at("conv1.weight").shape == Shape{4, 3, 7, 7});  // OIHW
      Tensor conv = empty({4, 3, 7, 7}, DType::f32);
      file.read("conv1.weight", conv);
      const auto ours = saved.named_parameters()[0].tensor;
      CHECK(conv.to_vector() == permute(ours, {0, 3, 1, 2}).to_vector());
    }
    ResNet loaded(small_resnet());
    CHECK(load_model(path, loaded).missing.empty());
    saved.eval();
    loaded.eval();
    const NoGrad guard;
    CHECK(loaded(x).to_vector() == saved(x).to_vector());

    const uint64_t f32_size = fs::file_size(path);
    save_model(path, saved, {}, DType::f16);
    CHECK(fs::file_size(path) + static_cast<uint64_t>(saved.parameter_count()) * 2 < f32_size);
    load_model(path, loaded);
    for (size_t i = 0; i < saved.parameters().size(); ++i)
      CHECK(loaded.parameters()[i].to_vector() ==
            cast(cast(saved.parameters()[i], DType::f16), DType::f32).to_vector());

    ResNet more_classes(small_resnet(7));
    CHECK_THROWS_WITH_AS(load_model(path, more_classes),
                         doctest::Contains("other shapes: fc.weight is (5, 8), not (7, 8)"),
                         FileError);
    StateDict some = torch_state_dict(loaded);
    some.resize(some.size() - 1);
    some.push_back({"head.bias", zeros({5})});
    some.push_back({"bn1.num_batches_tracked", zeros({})});
    write_safetensors(path, some);
    CHECK_THROWS_WITH_AS(load_model(path, loaded), doctest::Contains("; unexpected: head.bias"),
                         FileError);
    const LoadResult result = load_model(path, loaded, false);
    CHECK(result.missing == std::vector<std::string>{"layer4.1.bn2.running_var"});
    CHECK(result.unexpected == std::vector<std::string>{"head.bias"});
  });
}

TEST_CASE("model files: an error names ten tensors, and how many more there are" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "t.safetensors";
  Linear model(1, 2);
  StateDict state = state_dict(model);
  for (int i = 0; i < 11; ++i) {
    state.push_back({fmt::format("name{:02}", i), zeros({1})});
    write_safetensors(path, state);
    const std::string message = message_of<FileError>([&] { load_model(path, model); });
    CHECK(contains(message, fmt::format("name{:02}", std::min(i, 9))));
    CHECK(!contains(message, "name10"));
    CHECK(contains(message, " and ") == (i == 10));
    CHECK(contains(message, " and 1 more") == (i == 10));
  }
}

TEST_CASE("model files: a tensor that is not read leaves the others alone" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "t.safetensors";
  Linear model(1, 2);
  for (const auto& [dtype, shape, bytes, why] :
       {std::tuple{"F8_E8M0", "[3]", 3, "has the dtype \"F8_E8M0\", which is not read"},
        std::tuple{"F4", "[2,3]", 3, "has the dtype \"F4\", which is not read"},
        std::tuple{"C64", "[]", 8, "has the dtype \"C64\", which is not read"},
        std::tuple{"U8", "[1,1,3,1,1,1,2,1,1]", 6, "has 9 dimensions, of which at most 6 are read"},
        std::tuple{"F32", "[1,1,1,0,1,1,1]", 0, "has 7 dimensions"}}) {
    CAPTURE(dtype);
    const auto write = [&](const std::string& name) {
      const std::string header = fmt::format(
          R"({{"__metadata__":null,"bias":{{"dtype":"F32","shape":[2],"data_offsets":[{0},{1}]}},)"
          R"("{2}":{{"dtype":"{3}","shape":{4},"data_offsets":[0,{0}]}}}})",
          bytes, bytes + 8, name, dtype, shape);
      const auto length = static_cast<uint64_t>(header.size());
      const float values[2] = {3, -5};
      std::ofstream file(path, std::ios::binary);
      file.write(reinterpret_cast<const char*>(&length), sizeof length);
      file << header << std::string(static_cast<size_t>(bytes), '\x7f');
      file.write(reinterpret_cast<const char*>(values), sizeof values);
    };
    write("scale");
    const SafetensorsFile file(path);
    CHECK(file.metadata().empty());
    const Tensor bias = zeros({2});
    file.read("bias", bias);
    CHECK(bias.to_vector() == std::vector<float>{3, -5});
    CHECK_THROWS_WITH_AS(file.read("scale", zeros({3})), doctest::Contains(why), FileError);
    const LoadResult loaded = load_tensors(file, {{"bias", model.bias.detach()}}, false);
    CHECK(loaded.unexpected == std::vector<std::string>{"scale"});
    CHECK(model.bias.to_vector() == std::vector<float>{3, -5});
    fill_(model.bias.detach(), 1);
    write("weight");
    CHECK_THROWS_WITH_AS(load_model(path, model), doctest::Contains(why), FileError);
    CHECK(model.bias.to_vector() == std::vector<float>{1, 1});
  }
}

TEST_CASE("model files: renamed tensors of foreign formats" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const StateDict tensors = {{"encoder.0.norm.weight", zeros({1})},
                             {"encoder.0.norm.bias", zeros({1})}};
  const StateDict foreign = renamed(
      tensors, {{"encoder.", "layer."}, {"norm.weight", "norm.gamma"}, {"norm.bias", "norm.beta"}});
  CHECK(foreign[0].name == "layer.0.norm.gamma");
  CHECK(foreign[1].name == "layer.0.norm.beta");
}
