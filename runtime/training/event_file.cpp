#include "runtime/training/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "runtime/error.h"
#include "support/text.h"

namespace graphpipe::runtime {
namespace {

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}();

// A CRC over bytes that contain CRCs is weak, so TFRecord rotates it and adds a constant.
uint32_t masked(uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8U; }

template <typename Number>
std::string little_endian(Number number) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

std::string varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(0x80 | (number & 0x7f));
  return bytes + static_cast<char>(number);
}

// Fields by their wire types: 0 varint, 1 eight bytes, 2 a length and bytes, 5 four bytes.
std::string tag(int field, int wire_type) {
  return varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
}
std::string integer(int field, int64_t number) { return tag(field, 0) + varint(static_cast<uint64_t>(number)); }
std::string real64(int field, double number) { return tag(field, 1) + little_endian(number); }
std::string real32(int field, float number) { return tag(field, 5) + little_endian(number); }
std::string bytes_field(int field, std::string_view bytes) {
  return tag(field, 2) + varint(bytes.size()) + std::string(bytes);
}

std::string framed(const std::string& event) {
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  return length + little_endian(masked(crc32c(length))) + event + little_endian(masked(crc32c(event)));
}

std::string host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0 || std::strchr(name, '/') != nullptr) return "localhost";
  return name;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

std::string version_record(double wall_time) { return framed(real64(1, wall_time) + bytes_field(3, "brain.Event:2")); }

std::string restart_record(double wall_time, int64_t step) {
  return framed(real64(1, wall_time) + integer(2, step) + bytes_field(7, integer(1, 1)));
}

std::string scalars_record(double wall_time, int64_t step, std::span<const std::pair<std::string, double>> scalars) {
  std::string summary;
  for (const auto& [name, value] : scalars)
    summary += bytes_field(1, bytes_field(1, name) + real32(2, static_cast<float>(value)));
  return framed(real64(1, wall_time) + integer(2, step) + bytes_field(5, summary));
}

GrowingFile make_event_file(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw RunError(Diagnostic{.code = Code::kEnvironment,
                              .origin = ModelText(folder),
                              .message = text("cannot make the folder: ", error.message()),
                              .hint = "check the folder of --tensorboard, its permissions and the space on its disk"});
  const std::string stem =
      text(folder, "/events.out.tfevents.", std::time(nullptr), ".", host_name(), ".", getpid(), ".");
  int run = 0;
  while (std::filesystem::exists(text(stem, run), error)) ++run;
  return {text(stem, run), GrowingFile::Begin::kOnlyAnew};
}

}  // namespace graphpipe::runtime
