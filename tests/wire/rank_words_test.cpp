#include "wire/rank_words.h"

#include <doctest/doctest.h>

using namespace graphpipe::wire;

TEST_CASE("words of ranks are read as they were written, and nothing is read of broken ones") {
  const std::vector<RankWords> ranks = {{{"device", "--steps", "2", ""}, 5, 3, {7, 9}}, {{"device"}, 6, 3, {}}};
  const std::string text = rank_words_text(ranks);
  const auto read = parse_rank_words(text);
  REQUIRE(read);
  REQUIRE(read->size() == ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    CHECK((*read)[i].arguments == ranks[i].arguments);
    CHECK((*read)[i].output == ranks[i].output);
    CHECK((*read)[i].go == ranks[i].go);
    CHECK((*read)[i].descriptors == ranks[i].descriptors);
  }
  CHECK(parse_rank_words("")->empty());
  const size_t first = rank_words_text({ranks.front()}).size();
  for (size_t length = 1; length < text.size(); ++length)
    if (length != first) CHECK_FALSE(parse_rank_words(text.substr(0, length)));
  using namespace std::string_literals;
  CHECK_FALSE(parse_rank_words("5\0003\000999999999\000x\000"s));
  CHECK_FALSE(parse_rank_words("-5\0003\0000\0001\000device\000"s));
  CHECK_FALSE(parse_rank_words(rank_words_text({{{}, 5, 3, {}}})));  // no program
}
