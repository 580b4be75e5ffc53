"""What every route takes and answers, in OpenAPI's words.

`openapi` serves it; the first GET /openapi.json imports the rest. Where code checks a body by
a model or a table, its schema is made of that; what an object looks like that code puts together by
hand is told by an instance of it, or described by a model that tests hold against real answers.
"""
