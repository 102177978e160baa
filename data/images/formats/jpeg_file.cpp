#include "data/images/formats/jpeg_file.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <jerror.h>
#include <jpeglib.h>

#include "core/base/error.h"

namespace rw {

namespace {

// libjpeg reports errors by longjmp(), which must not pass a destructor: each function that calls
// it has its own setjmp() and nothing to destroy.
struct JpegReader {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf failed{};
  char why[JMSG_LENGTH_MAX] = "";

  JpegReader();
  ~JpegReader() { jpeg_destroy_decompress(&jpeg); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  bool read_header(std::span<const uint8_t> bytes);
  bool choose_size(int least_side);
  bool read_pixels(uint8_t* out);
  size_t channels() const { return jpeg.out_color_space == JCS_CMYK ? 4 : 3; }
};

[[noreturn]] void give_up(j_common_ptr common) {
  auto& reader = *static_cast<JpegReader*>(common->client_data);
  common->err->format_message(common, reader.why);
  std::longjmp(reader.failed, 1);
}

// libjpeg only warns when data are missing or wrong, and invents pixels.
void on_message(j_common_ptr common, int level) {
  if (level >= 0) return;
  constexpr int harmless[] = {JWRN_ADOBE_XFORM, JWRN_BOGUS_ICC, JWRN_EXTRANEOUS_DATA,
                              JWRN_JFIF_MAJOR, JWRN_TOO_MUCH_DATA};
  if (std::ranges::count(harmless, common->err->msg_code) == 0) give_up(common);
}

// A file can have scans that go over the picture for hours; cameras write ten of them.
void on_progress(j_common_ptr common) {
  constexpr int most_scans = 100;
  if (reinterpret_cast<j_decompress_ptr>(common)->input_scan_number <= most_scans) return;
  auto& reader = *static_cast<JpegReader*>(common->client_data);
  std::snprintf(reader.why, sizeof reader.why, "more than %d scans", most_scans);
  std::longjmp(reader.failed, 1);
}

JpegReader::JpegReader() {
  jpeg.err = jpeg_std_error(&errors);
  jpeg.client_data = this;
  errors.error_exit = give_up;
  errors.emit_message = on_message;
  progress.progress_monitor = on_progress;
}

bool JpegReader::read_header(std::span<const uint8_t> bytes) {
  if (setjmp(failed)) return false;
  jpeg_create_decompress(&jpeg);
  jpeg.progress = &progress;
  jpeg_mem_src(&jpeg, bytes.data(), bytes.size());
  jpeg_save_markers(&jpeg, JPEG_APP0 + 1, 0xFFFF);  // EXIF
  jpeg_read_header(&jpeg, TRUE);
  return true;
}

bool JpegReader::choose_size(int least_side) {
  if (setjmp(failed)) return false;
  const bool cmyk = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  const unsigned side = std::min(jpeg.image_height, jpeg.image_width);
  jpeg.scale_num = jpeg.scale_denom = 1;
  while (least_side > 0 && jpeg.scale_denom < 8 &&
         side / (2 * jpeg.scale_denom) >= static_cast<unsigned>(least_side))
    jpeg.scale_denom *= 2;
  jpeg_calc_output_dimensions(&jpeg);
  return true;
}

bool JpegReader::read_pixels(uint8_t* out) {
  if (setjmp(failed)) return false;
  jpeg_start_decompress(&jpeg);
  const size_t row_bytes = jpeg.output_width * channels();
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = out + jpeg.output_scanline * row_bytes;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

// Converts in place. Adobe's programs store inks inverted, and nobody else writes CMYK.
void cmyk_to_rgb(std::vector<uint8_t>& pixels) {
  uint8_t* out = pixels.data();
  for (size_t at = 0; at < pixels.size(); at += 4)
    for (size_t c = 0; c < 3; ++c)
      *out++ = static_cast<uint8_t>((pixels[at + c] * pixels[at + 3] + 127) / 255);
  pixels.resize(pixels.size() / 4 * 3);
}

// The orientation in the EXIF data, which may go on in further markers: so of two whole ones, the
// first counts.
int orientation_of(const jpeg_decompress_struct& jpeg) {
  constexpr uint8_t exif[] = {'E', 'x', 'i', 'f', 0, 0};
  std::vector<uint8_t> all;
  for (const jpeg_marker_struct* marker = jpeg.marker_list; marker; marker = marker->next) {
    const std::span<const uint8_t> data(marker->data, marker->data_length);
    if (data.size() >= sizeof exif && std::equal(exif, exif + sizeof exif, data.begin()))
      all.insert(all.end(), data.begin() + sizeof exif, data.end());
  }
  return exif_orientation(all);
}

void check_whole(bool whole, const JpegReader& reader, const std::string& name) {
  check<FileError>(whole, "decode_image", "'{}' must be a whole JPEG image, got one with: {}", name,
                   std::string(reader.why));
}

}  // namespace

Image decode_jpeg(std::span<const uint8_t> bytes, const std::string& name, int least_side) {
  JpegReader reader;
  check_whole(reader.read_header(bytes), reader, name);
  const jpeg_decompress_struct& jpeg = reader.jpeg;
  check_image_size(jpeg.image_height, jpeg.image_width, bytes.size(), name);
  check_whole(reader.choose_size(least_side), reader, name);
  const int orientation = orientation_of(jpeg);  // markers go with the last pixel
  Image image{static_cast<int>(jpeg.output_height), static_cast<int>(jpeg.output_width), {}};
  image.pixels.resize(size_t{jpeg.output_height} * jpeg.output_width * reader.channels());
  check_whole(reader.read_pixels(image.pixels.data()), reader, name);
  if (reader.channels() == 4) cmyk_to_rgb(image.pixels);
  return oriented(std::move(image), orientation);
}

ImageSize jpeg_size(std::span<const uint8_t> bytes, uint64_t stored, const std::string& name) {
  JpegReader reader;
  check_whole(reader.read_header(bytes), reader, name);
  check_image_size(reader.jpeg.image_height, reader.jpeg.image_width, stored, name);
  return {static_cast<int>(reader.jpeg.image_height), static_cast<int>(reader.jpeg.image_width)};
}

}  // namespace rw
