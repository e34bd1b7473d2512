"""Dialogues on tasks: what a user and an assistant say in turn, and which of the messages overtakes which."""

CHANGES: tuple[tuple[tuple[str, ...], set[tuple[int, int]]], ...] = (
    (
        (
            "Find me a museum to visit in Vienna.",
            "There is the Albertina. It is open until 9 pm.",
            "I'd rather see a park.",
        ),
        {(0, 2)},
    ),
    (
        (
            "I'm looking for a house to rent in Napa with 2 baths.",
            "There are 3 houses. How about 14 Oak Lane?",
            "Are there any with 3 baths?",
        ),
        {(0, 2)},
    ),
    (
        (
            "I want a hatchback from Monday to Thursday.",
            "There is a Honda Fit for 40 dollars a day.",
            "Do you have a sedan?",
        ),
        {(0, 2)},
    ),
    (
        (
            "Set an alarm for 6:30 am.",
            "The alarm will ring at 6:30 am. Is that right?",
            "6:45 would be better.",
        ),
        {(0, 2)},
    ),
    (
        (
            "I'd like to see it in 3D.",
            "Please confirm: two tickets for the 3D show at 8 pm.",
            "No, the regular show.",
        ),
        {(0, 2)},
    ),
    (
        (
            "Fly me to Denver with Delta.",
            "Delta has a flight at 9 am for 210 dollars.",
            "What does United have?",
        ),
        {(0, 2)},
    ),
    (
        (
            "Send 60 dollars to Priya.",
            "You want to send 60 dollars to Priya, publicly visible. Correct?",
            "It should be 75 dollars.",
        ),
        {(0, 2)},
    ),
    (
        (
            "I need a bus from Fresno to Sacramento on the 4th.",
            "There is one at 7:10 am, for one passenger.",
            "Could you look for the 6th instead?",
        ),
        {(0, 2)},
    ),
    (
        (
            "I want to stay for 3 nights.",
            "Please confirm: Hotel Rio, one room, 3 nights from March 2nd.",
            "I will be staying 5 nights.",
        ),
        {(0, 2)},
    ),
    (
        (
            "Play it on the kitchen speaker.",
            "Play Yellow on the kitchen speaker?",
            "On the bedroom one, please.",
        ),
        {(0, 2)},
    ),
    (
        (
            "An unfurnished apartment in Oakland with two bedrooms.",
            "There's one at 50 Lake Street for 2100 dollars.",
            "Let me see some in Alameda.",
        ),
        {(0, 2)},
    ),
    (
        (
            "Find events for me in Atlanta.",
            "What kind, music or sports?",
            "Sports.",
            "Braves vs Mets on March 7th.",
            "Are there any concerts?",
        ),
        {(2, 4)},
    ),
    (
        (
            "I want to eat at Sushi Ran.",
            "At what time, and for how many?",
            "For 2 people at 12:30 in the afternoon.",
            "Unfortunately there is no table at that time.",
            "Let's do 1 pm.",
        ),
        {(2, 4)},
    ),
    (
        (
            "Find a therapist in Danville.",
            "A psychologist or a family counselor?",
            "A psychologist.",
            "There is Dr. Ellis in Danville.",
            "I think a family counselor fits better.",
        ),
        {(2, 4)},
    ),
    (
        (
            "Book the train to Portland for March 8th, value fare.",
            "Confirm: a value ticket to Portland on March 8th at 10:20 am.",
            "I'd like a flexible fare.",
        ),
        {(0, 2)},
    ),
    (
        (
            "I'm looking for something to do in Rome with free entry.",
            "The Spanish Steps, a historical landmark.",
            "Something in Paris would be better.",
        ),
        {(0, 2)},
    ),
    (
        (
            "Transfer 120 dollars from my savings account.",
            "120 dollars from savings to whom?",
            "To Ben. Take it from checking though.",
        ),
        {(0, 2)},
    ),
    (
        (
            "How's the weather in Davis on Thursday?",
            "75 degrees with a 10 percent chance of rain.",
            "And on Sunday?",
        ),
        {(0, 2)},
    ),
    (
        (
            "I'd like a cab for 1 to the airport.",
            "A regular cab for 1 person to the airport?",
            "There will be 3 of us.",
        ),
        {(0, 2)},
    ),
    (
        (
            "Get me a hotel with 2 rooms in Lima.",
            "Hotel Sol has 4 stars. Shall I book 2 rooms?",
            "We only need 1 room.",
        ),
        {(0, 2)},
    ),
    (
        (
            "I want tickets for the 9 pm show.",
            "2 tickets for Ma at 9 pm at Regal?",
            "Is there an earlier one? Say 6:30 pm.",
        ),
        {(0, 2)},
    ),
    (
        (
            "I want an Italian place in Milpitas.",
            "Giorgio's is nice.",
            "What Mexican ones are there?",
        ),
        {(0, 2)},
    ),
    (
        (
            "Put the dentist on my calendar for Tuesday at 4 pm.",
            "Dentist, Tuesday, 4 pm. OK?",
            "Wednesday at the same time.",
        ),
        {(0, 2)},
    ),
    (
        (
            "I'm leaving on the 10th.",
            "From where?",
            "From Boston.",
            "American has a flight on the 10th for 180.",
            "See if there's something on the 11th.",
        ),
        {(0, 4)},
    ),
    (
        (
            "Busco un piso en Gijón.",
            "Hay tres, desde 500 euros.",
            "Mejor una casa en Avilés.",
        ),
        {(0, 2)},
    ),
    (
        (
            "Una entrada para la sesión de las siete.",
            "¿Una entrada a las 19:00?",
            "Que sean tres entradas.",
        ),
        {(0, 2)},
    ),
    (
        (
            "Alquílame un coche desde el viernes.",
            "¿Un compacto desde el viernes?",
            "Desde el sábado, y que sea un todoterreno.",
        ),
        {(0, 2)},
    ),
    (
        (
            "Quiero cenar en un sitio barato.",
            "Está Casa Pepe, económico.",
            "Busca uno más caro, de lujo.",
        ),
        {(0, 2)},
    ),
)
"""A value of the task is given anew."""
NO_CHANGES: tuple[tuple[str, ...], ...] = (
    ("Find me a museum in Vienna.", "There is the Albertina.", "Great. Are there parks near the hotel too?"),
    ("I'd like to rent a house in Napa.", "With how many baths?", "Two. It should allow pets."),
    ("I want a hatchback from Monday.", "Until when?", "Until Thursday. Pick-up at 10 am."),
    ("Set an alarm for 6:30 am.", "Done. Anything else?", "Set another alarm for 8 am."),
    ("Fly me to Denver with Delta.", "For how many people?", "For 3 people in economy."),
    ("Send 60 dollars to Priya.", "Done. Anything else?", "Also request 20 dollars from Tom."),
    ("Find a bus to Sacramento on the 4th.", "At 7 am for 30 dollars.", "Book it. I also need a hotel from the 4th."),
    ("Find a dentist in Danville.", "Dr. Ellis.", "Yes, book it for Monday at 3 pm."),
    ("Find events in Atlanta.", "Braves vs Mets.", "Nice. Now find a bus to Atlanta for March 6th."),
    ("I want to eat at Sushi Ran at 6 pm.", "Confirm: 6 pm at Sushi Ran, 2 people.", "Yes. What is the address?"),
    ("Check my savings balance.", "You have 800 dollars.", "Send 200 of it to Ann."),
    ("Weather in Davis on Thursday?", "75 degrees.", "Thanks. Find me a concert in Davis for that day."),
    ("A cab to the airport.", "For how many?", "For 3 people. A shared ride is fine."),
    ("Book 2 rooms in Lima.", "For how many nights?", "4 nights from the 3rd of March."),
    ("Play Yellow by Coldplay.", "Playing.", "Then find me a restaurant with live music."),
    ("I want to rent in Oakland.", "There's one with 2 bedrooms.", "Schedule a visit on March 9th."),
    ("Busco piso en Gijón.", "¿Con cuántas habitaciones?", "Con dos, y que tenga terraza."),
    ("Una entrada para las siete.", "Reservada.", "Después, una mesa para dos a las diez."),
    ("Quiero cenar barato.", "¿Qué cocina?", "Italiana, cerca del centro."),
    ("Resérvame un tren a León el lunes.", "Hecho.", "La vuelta, el miércoles."),
)
"""Nothing is overtaken."""
