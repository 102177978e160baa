#include "data/images/formats/webp_file.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/error.h"

namespace rw {

namespace {

int orientation_in(const WebPData& data) {
  const std::unique_ptr<WebPDemuxer, void (*)(WebPDemuxer*)> demuxer(WebPDemux(&data),
                                                                     WebPDemuxDelete);
  WebPChunkIterator chunk{};
  if (!demuxer || !WebPDemuxGetChunk(demuxer.get(), "EXIF", 1, &chunk)) return 1;
  std::span<const uint8_t> exif(chunk.chunk.bytes, chunk.chunk.size);
  constexpr uint8_t jpegs[] = {'E', 'x', 'i', 'f', 0, 0};  // some programs write this before it
  if (exif.size() > sizeof jpegs && std::equal(jpegs, jpegs + sizeof jpegs, exif.begin()))
    exif = exif.subspan(sizeof jpegs);
  const int orientation = exif_orientation(exif);
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

}  // namespace

Image decode_webp(std::span<const uint8_t> bytes, const std::string& name) {
  const ImageSize size = webp_size(bytes, bytes.size(), name);
  const WebPData data{bytes.data(), bytes.size()};
  WebPAnimDecoderOptions options;
  WebPAnimDecoderOptionsInit(&options);
  options.color_mode = MODE_RGBA;
  const std::unique_ptr<WebPAnimDecoder, void (*)(WebPAnimDecoder*)> decoder(
      WebPAnimDecoderNew(&data, &options), WebPAnimDecoderDelete);
  uint8_t* pixels = nullptr;
  int time = 0;
  const bool whole = decoder && WebPAnimDecoderGetNext(decoder.get(), &pixels, &time);
  check<FileError>(whole, "decode_image",
                   "'{}' must be a whole WebP image, got one that ends early "
                   "or is damaged",
                   name);
  Image image{size.height, size.width, {}};
  image.pixels.resize(3 * static_cast<size_t>(size.height) * static_cast<size_t>(size.width));
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    const uint8_t* const pixel = pixels + i / 3 * 4;
    const int value = pixel[i % 3] * pixel[3] + 255 * (255 - pixel[3]);
    image.pixels[i] = static_cast<uint8_t>((value + 127) / 255);
  }
  return oriented(std::move(image), orientation_in(data));
}

ImageSize webp_size(std::span<const uint8_t> bytes, uint64_t stored, const std::string& name) {
  WebPBitstreamFeatures about;
  check<FileError>(WebPGetFeatures(bytes.data(), bytes.size(), &about) == VP8_STATUS_OK,
                   "decode_image", "'{}' must be a whole WebP image, got one without a header",
                   name);
  const auto height = static_cast<uint64_t>(about.height),
             width = static_cast<uint64_t>(about.width);
  check_image_size(height, width, stored, name);
  return {about.height, about.width};
}

}  // namespace rw
