#include "driver/cli/validators.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "driver/cli/byte_words.h"
#include "support/text.h"

namespace graphpipe::driver {
namespace {

CLI::Validator number_that(bool (*is_good)(double), const std::string& wanted, const char* type) {
  const auto check = [=](std::string& word) {
    double number = 0;
    return read_number(word, number) && is_good(number) ? "" : "'" + word + "' is not a number " + wanted;
  };
  return {check, type};
}

CLI::Validator bytes_from(double fewest, const std::string& wanted, const char* type) {
  const auto check = [=](std::string& word) {
    const std::optional<double> bytes = bytes_of_word(word);
    if (!bytes || !(*bytes >= fewest && *bytes > 0 && *bytes <= 1e18))
      return "'" + word + "' is not a number " + wanted + ", alone or with KB, MB, GB, TB, KiB, MiB, GiB or TiB";
    word = fmt::format("{}", *bytes);
    return std::string();
  };
  return {check, type};
}

}  // namespace

const CLI::Validator kOneOrMore = CLI::Range(int64_t{1}, int64_t{1} << 30);
const CLI::Validator kNotNegative =
    number_that([](double number) { return number >= 0 && number <= 1e18; }, "from 0 to 1e18", "NUMBER >= 0");
const CLI::Validator kBytes = bytes_from(0, "above 0, of at most 1e18", "BYTES");
// Over slower links steps last longer than a schedule can say.
const CLI::Validator kLinkSpeed = bytes_from(1000, "from 1000 to 1e18", "BYTES");

const CLI::Validator kWhole64(
    [](std::string& word) {
      uint64_t number = 0;
      return read_number(word, number) ? std::string() : "'" + word + "' is not a whole number from 0 to 2^64 - 1";
    },
    "0 to 2^64-1");

}  // namespace graphpipe::driver
