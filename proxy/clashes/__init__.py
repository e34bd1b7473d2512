"""Which statements of a user no longer hold, because a later one says otherwise. In English and Spanish; all pure.

A message is read once (`reading`) into statements (`statements`), which are made of clauses (`clauses`), their terms
(`terms`; `hints` says by them which patterns need not be tried), and the values in them (`values`, `rates`,
`categories`, `places`), and what they say of people and things (`relations`, `traits`, `possessions`, `attitudes`).
`comparison` says whether two of them clash, with `denials` for what one denies, `subjects` for whom and what they are
about, `differing` for their values, `alignment` for the order of their words, and `agreement` for what speaks against
it where they are about the world; `dialogue` says which pairs of a conversation do, `wording` what the model is told.
"""
