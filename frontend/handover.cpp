#include "frontend/handover.h"

#include <algorithm>

#include "frontend/wire_reader.h"

namespace graphpipe::frontend {
namespace {

// Fields of a handover, and of a diagnostic in it.
constexpr uint32_t kModel = 1, kNote = 2, kProblem = 3;
constexpr uint32_t kCode = 1, kSeverity = 2, kOrigin = 3, kMessage = 4, kHint = 5;

std::string encode(const Diagnostic& diagnostic) {
  std::string bytes;
  append_varint_field(bytes, kCode, static_cast<uint64_t>(diagnostic.code));
  append_varint_field(bytes, kSeverity, static_cast<uint64_t>(diagnostic.severity));
  append_field(bytes, kOrigin, diagnostic.origin.raw());
  append_field(bytes, kMessage, diagnostic.message);
  append_field(bytes, kHint, diagnostic.hint);
  return bytes;
}

bool is_plain(std::string_view words) {
  return std::ranges::all_of(words, [](char c) { return c >= 0x20 && c < 0x7f; });
}

std::optional<Diagnostic> decode_diagnostic(std::string_view bytes) {
  Diagnostic diagnostic;
  WireReader reader(bytes);
  while (const std::optional<WireField> field = reader.next()) {
    if (field->number == kCode) {
      if (field->scalar > static_cast<uint64_t>(Code::kInternal)) return std::nullopt;
      diagnostic.code = static_cast<Code>(field->scalar);
    } else if (field->number == kSeverity) {
      if (field->scalar > static_cast<uint64_t>(Severity::kNote)) return std::nullopt;
      diagnostic.severity = static_cast<Severity>(field->scalar);
    } else if (field->number == kOrigin) {
      diagnostic.origin = ModelText(std::string(field->content));
    } else if (field->number == kMessage) {
      diagnostic.message = field->content;
    } else if (field->number == kHint) {
      diagnostic.hint = field->content;
    }
  }
  if (reader.malformed() || !is_plain(diagnostic.message) || !is_plain(diagnostic.hint)) return std::nullopt;
  return diagnostic;
}

}  // namespace

std::string encode_handover(const Handover& handover) {
  std::string bytes;
  for (const Diagnostic& note : handover.notes) append_field(bytes, kNote, encode(note));
  for (const Diagnostic& problem : handover.problems) append_field(bytes, kProblem, encode(problem));
  if (!handover.model.empty()) append_field(bytes, kModel, handover.model);
  return bytes;
}

std::optional<Handover> decode_handover(std::string_view bytes) {
  Handover handover;
  WireReader reader(bytes);
  while (const std::optional<WireField> field = reader.next()) {
    if (field->number == kModel) {
      handover.model = field->content;
      continue;
    }
    std::optional<Diagnostic> diagnostic = decode_diagnostic(field->content);
    if (!diagnostic || (field->number != kNote && field->number != kProblem)) return std::nullopt;
    (field->number == kNote ? handover.notes : handover.problems).push_back(std::move(*diagnostic));
  }
  if (reader.malformed() || handover.model.empty() == handover.problems.empty()) return std::nullopt;
  return handover;
}

}  // namespace graphpipe::frontend
