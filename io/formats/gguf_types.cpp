#include "io/formats/gguf_types.h"

#include <algorithm>
#include <cctype>

namespace rw {

namespace {

const GgufTypeInfo* found(auto&& matches) {
  static const GgufTypeInfo types[] = {
      {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, blocks::q4_0},
      {3, blocks::q4_1},        {6, blocks::q5_0},        {7, blocks::q5_1},
      {8, blocks::q8_0},        {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
      {11, "Q3_K", 256, 110},   {12, blocks::q4_k},       {13, blocks::q5_k},
      {14, blocks::q6_k},       {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
      {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
      {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
      {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
      {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
      {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
      {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
      {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
  };
  const auto* type = std::find_if(std::begin(types), std::end(types), matches);
  return type == std::end(types) ? nullptr : type;
}

}  // namespace

const GgufTypeInfo* find_gguf_type(uint32_t number) {
  return found([&](const GgufTypeInfo& type) { return type.number == number; });
}

const GgufTypeInfo* find_gguf_type(std::string_view name) {
  return found([&](const GgufTypeInfo& type) {
    return std::ranges::equal(type.name, name, {}, {},
                              [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  });
}

}  // namespace rw
