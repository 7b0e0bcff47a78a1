#pragma once
// What the words after flags may be.

namespace CLI {
class Validator;
}

namespace graphpipe::driver {

extern const CLI::Validator kOneOrMore;
/// CLI11's own ranges let NaN pass and print bounds with six decimals.
extern const CLI::Validator kNotNegative;
/// Put the number of bytes in the word's place.
extern const CLI::Validator kBytes;
extern const CLI::Validator kLinkSpeed;
/// CLI11's own reader saturates a number that does not fit.
extern const CLI::Validator kWhole64;

}  // namespace graphpipe::driver
