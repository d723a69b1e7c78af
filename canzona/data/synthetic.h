// The built-in language: text that anybody can make anywhere, with structure
// at every distance that a model can learn.
//
//   std::string text = synthetic_text(seed, 4 << 20);
//
// Stories of some twenty sentences each. A story has a topic, which most of
// its nouns belong to, and two people, whose names come again. Sentences:
//
//   the small rako that the velus see keeps a torim.   verbs agree with their
//                                                      subject, over a clause
//   Mira counts 4, 5, 6, 7.        17 plus 5 is 22.    numbers
//   Tovin says "lom rako sen" and Mira repeats "lom rako sen".   copying
//   ( rako [ lom { sen } ] )                           brackets are closed
//
// ASCII alone, integer arithmetic alone: the same bytes on every machine.
#pragma once

#include <cstdint>
#include <string>

namespace canzona {

std::string synthetic_text(uint64_t seed, int64_t size);

}  // namespace canzona
