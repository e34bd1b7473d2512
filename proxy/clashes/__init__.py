"""Which statements of a user no longer hold, because a later one says otherwise. In English and Spanish; all pure.

A message is read once into statements (`statements`), which are made of clauses (`clauses`), their terms (`terms`), and
the values in them (`values`, `categories`); `comparison` says whether two of them clash, `dialogue` which pairs of a
conversation do, `wording` what the model is told.
"""
