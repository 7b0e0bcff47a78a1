// TfIdfVectorizer on numbers: how often each of a list of n-grams occurs in a row, where the words of an n-gram may be
// some words apart (https://onnx.ai/onnx/operators/onnx__TfIdfVectorizer.html). Every n-gram is compared at every
// position.

#include <algorithm>

#include "frontend/node_context.h"

namespace graphpipe::frontend {
namespace {

using ir::Dim;
using ir::ValueId;
using Ints = std::vector<int64_t>;

constexpr int64_t kMaxLength = 16, kMaxApart = 16;

class WordCounts {
 public:
  explicit WordCounts(NodeContext& context) : context_(context) {}
  Status run();

 private:
  Status read_form();
  /// Word `place` of each of `grams` n-grams of `length` words.
  Result<ValueId> words(int64_t length, int64_t grams, int64_t place);
  /// [rows, grams]: how often those with `length` words occur, at distance `apart` between words.
  Result<ValueId> occurrences(ValueId rows, int64_t length, int64_t apart);
  Result<ValueId> counts(ValueId rows);
  Result<ValueId> weighed(ValueId counts);
  int64_t grams_of(int64_t length) const { return (end_of(length) - first_[static_cast<size_t>(length - 1)]) / length; }
  int64_t end_of(int64_t length) const {
    const auto next = static_cast<size_t>(length);
    return next < first_.size() ? first_[next] : std::ssize(pool_);
  }

  NodeContext& context_;
  /// The n-grams in order of length; the start of each length; the column of each.
  Ints pool_, first_, columns_;
  std::vector<double> weights_;
  int64_t shortest_ = 1, longest_ = 1, apart_ = 0, row_length_ = 0, width_ = 0;
};

Status WordCounts::read_form() {
  pool_ = context_.ints_attribute("pool_int64s");
  first_ = context_.ints_attribute("ngram_counts");
  columns_ = context_.ints_attribute("ngram_indexes");
  if (const Attribute* weights = context_.node().find("weights")) weights_ = weights->floats;
  shortest_ = context_.int_attribute("min_gram_length", 1);
  longest_ = context_.int_attribute("max_gram_length", 1);
  apart_ = context_.int_attribute("max_skip_count", 0);
  const ir::Shape& x = context_.type(0).shape;
  if (x.empty() || x.size() > 2 || !x.back().is_fixed())
    return context_.problem(Code::kUnsupportedOp, "counts in something else than rows of one length",
                            "give it [samples, words]");
  row_length_ = x.back().factor;
  if (longest_ > kMaxLength || apart_ > kMaxApart)
    return context_.problem(Code::kLimitExceeded,
                            text("compares n-grams of up to ", longest_, " words, ", apart_, " apart"),
                            text("use at most ", kMaxLength, " words, ", kMaxApart, " apart"));
  bool fits = shortest_ >= 1 && shortest_ <= longest_ && apart_ >= 0 && std::ssize(first_) >= longest_ &&
              !columns_.empty() && (weights_.empty() || weights_.size() == columns_.size());
  int64_t grams = 0, max_grams = 0;
  for (int64_t length = 1; fits && length <= std::ssize(first_); ++length) {
    const int64_t begin = first_[static_cast<size_t>(length - 1)];
    fits = begin >= 0 && begin <= end_of(length) && end_of(length) <= std::ssize(pool_);
    if (!fits) break;
    grams += grams_of(length);
    max_grams = std::max(max_grams, grams_of(length));
  }
  for (const int64_t column : columns_) {
    fits = fits && column >= 0 && column < (1 << 20);
    width_ = std::max(width_, column + 1);
  }
  if (fits && max_grams > kMaxKnownElements)
    return context_.problem(Code::kLimitExceeded, text("compares ", max_grams, " n-grams of one length"),
                            text("use at most ", kMaxKnownElements));
  if (!fits || grams != std::ssize(columns_))
    return context_.problem(Code::kBadModel, "its lists of n-grams do not fit each other", "export the model again");
  return context_.has_room_for(grams * width_);
}

Result<ValueId> WordCounts::words(int64_t length, int64_t grams, int64_t place) {
  std::vector<Number> numbers;
  for (int64_t gram = 0; gram < grams; ++gram) {
    const int64_t at = first_[static_cast<size_t>(length - 1)] + gram * length + place;
    numbers.push_back(Number::of_whole(pool_[static_cast<size_t>(at)]));
  }
  Binding binding;
  binding.type = {ir::DType::kInt64, {Dim::fixed(grams)}};
  binding.known = Known::list(std::move(numbers));
  binding.name = text(node_label(context_.node()).raw(), ".words", length, ".", place);
  return context_.lowering().value_of(binding, context_.node());
}

Result<ValueId> WordCounts::occurrences(ValueId rows, int64_t length, int64_t apart) {
  const int64_t places = row_length_ - (length - 1) * apart, grams = grams_of(length);
  ValueId all;
  for (int64_t place = 0; place < length; ++place) {
    const Ints begin = {place * apart}, end = {place * apart + places};
    GP_TRY(ValueId part, context_.emit_one("Slice", {rows},
                                           {{"starts", begin}, {"ends", end}, {"axes", Ints{1}}, {"steps", Ints{1}}}));
    GP_TRY(part, context_.emit_one("Unsqueeze", {part}, {{"axes", Ints{2}}}));
    GP_TRY(const ValueId word, words(length, grams, place));
    GP_TRY(part, context_.emit_one("Equal", {part, word}));
    if (all.valid()) {
      GP_TRY(part, context_.emit_one("And", {all, part}));
    }
    all = part;
  }
  GP_TRY(all, context_.emit_one("Cast", {all}, {{"to", std::string("f32")}}));
  return context_.emit_one("ReduceSum", {all}, {{"axes", Ints{1}}, {"keepdims", int64_t{0}}});
}

/// [rows, columns].
Result<ValueId> WordCounts::counts(ValueId rows) {
  std::vector<ValueId> found;
  std::vector<double> placement;
  size_t gram = 0;
  for (int64_t length = 1; length <= longest_; ++length) {
    const int64_t grams = grams_of(length);
    ValueId total;
    // For single words, the distance does not matter.
    for (int64_t apart = 1; length >= shortest_ && grams > 0 && apart <= (length == 1 ? 1 : apart_ + 1); ++apart) {
      if ((length - 1) * apart >= row_length_) break;
      GP_TRY(ValueId number, occurrences(rows, length, apart));
      if (total.valid()) {
        GP_TRY(number, context_.emit_one("Add", {total, number}));
      }
      total = number;
    }
    for (int64_t i = 0; i < grams; ++i, ++gram) {
      if (!total.valid()) continue;
      placement.resize(placement.size() + static_cast<size_t>(width_), 0);
      placement[placement.size() - static_cast<size_t>(width_ - columns_[gram])] = 1;
    }
    if (total.valid()) found.push_back(total);
  }
  if (found.empty())
    return context_.problem(Code::kBadModel, "has rows that are shorter than every n-gram", "export the model again");
  GP_TRY(const ValueId all, context_.emit_one("Concat", found, {{"axis", int64_t{1}}}));
  const auto height = static_cast<int64_t>(placement.size()) / width_;
  GP_TRY(const ValueId places,
         context_.constant("columns", ir::DType::kFloat32, {Dim::fixed(height), Dim::fixed(width_)}, placement));
  return context_.emit_one("MatMul", {all, places});
}

Result<ValueId> WordCounts::weighed(ValueId counts) {
  const std::string mode = context_.string_attribute("mode", "TF");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF")
    return context_.problem(Code::kBadModel, "its mode is none of TF, IDF and TFIDF", "export the model again");
  if (mode == "IDF") {
    GP_TRY(const ValueId zero, context_.scalar(0, ir::DType::kFloat32));
    GP_TRY(counts, context_.emit_one("Greater", {counts, zero}));
    GP_TRY(counts, context_.emit_one("Cast", {counts}, {{"to", std::string("f32")}}));
  }
  if (mode == "TF" || weights_.empty()) return counts;
  std::vector<double> row(static_cast<size_t>(width_), 0);
  for (size_t gram = 0; gram < columns_.size(); ++gram) row[static_cast<size_t>(columns_[gram])] = weights_[gram];
  GP_TRY(const ValueId weights, context_.constant("weights", ir::DType::kFloat32, {Dim::fixed(width_)}, row));
  return context_.emit_one("Mul", {counts, weights});
}

Status WordCounts::run() {
  if (context_.type(0).dtype != ir::DType::kInt64 && context_.type(0).dtype != ir::DType::kInt32)
    return context_.problem(Code::kUnsupportedType, "counts something else than int32 and int64",
                            "encode words as indices before the model");
  GP_TRY_VOID(read_form());
  GP_TRY(ValueId rows, context_.value(0));
  if (context_.type(0).dtype != ir::DType::kInt64) {
    GP_TRY(rows, context_.emit_one("Cast", {rows}, {{"to", std::string("i64")}}));
  }
  const bool is_one_row = context_.rank(0) == 1;
  if (is_one_row) {
    GP_TRY(rows, context_.emit_one("Unsqueeze", {rows}, {{"axes", Ints{0}}}));
  }
  GP_TRY(ValueId result, counts(rows));
  GP_TRY(result, weighed(result));
  if (is_one_row) {
    GP_TRY(result, context_.emit_one("Squeeze", {result}, {{"axes", Ints{0}}}));
  }
  context_.bind(0, result);
  return Ok{};
}

Status lower_word_counts(NodeContext& context) { return WordCounts(context).run(); }

}  // namespace

std::vector<HandlerEntry> word_count_handlers() { return {{"TfIdfVectorizer", lower_word_counts}}; }

}  // namespace graphpipe::frontend
